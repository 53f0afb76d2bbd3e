"""What a finding asks people, or a program, to change: a code, and words in which no name of a job stands."""

from enum import StrEnum
from typing import Self


class ChangeCode(StrEnum):
    """A change to a job; ``do`` says what it is while the job runs, ``do_after`` once it has ended."""

    do: str
    do_after: str

    def __new__(cls, value: str, do: str, do_after: str = "") -> Self:
        code = str.__new__(cls, value)
        code._value_, code.do, code.do_after = value, do, do_after or do
        return code

    def said(self, *, ended: bool) -> str:
        return self.do_after if ended else self.do

    NOTHING = "nothing", "Change nothing."
    WAIT_FOR_DATA = "wait_for_data", "Wait for more data, then ask again."
    COLLECT_DATA = "collect_data", "Collect what is missing, then ask again: missing names it."
    READ_JOB_LOG = "read_job_log", "Read the job's log at the times named: it says what the job did there."
    RECORD_KERNEL_TRACE = "record_kernel_trace", "Record a kernel trace of 3 to 10 steps."
    CORRECT_SETTING = "correct_setting", "Correct the faulty setting of TrainGuard for this job."
    REPORT_FAULT = "report_fault", "Report the rule that could not judge as a fault of TrainGuard."
    LOOK_AT_FINDING = "look_at_finding", "Look at the finding's facts."

    FEED_FASTER = "feed_faster", "Load batches faster: more loader workers, prefetching, less work in the main process."
    FEWER_LOADER_WORKERS = "fewer_loader_workers", "Lower num_workers to about one loader process a core."
    FASTER_STORAGE = "faster_storage", "Read faster: prefetch, pack data into larger files, use a faster volume."
    PIN_MEMORY = "pin_memory", "Set pin_memory=True in the DataLoader, and copy with non_blocking=True."
    COPY_LESS = "copy_less", "Copy less: keep data and state on the GPU, join small copies, copy beside computation."
    SHORTEN_START = "shorten_start", "Shorten what comes before the first step: stream data, cache builds and models."
    PAUSE_LESS = "pause_less", "Save, evaluate and log less often, or while training goes on."
    FIND_WAITS = "find_waits", "Find what the GPUs wait for between their work: data, checkpoints, other workers."
    FIX_SLOW_STEPS = "fix_slow_steps", "Find what the slow steps do that others do not: loading, saving, evaluation."

    RAISE_BATCH_SIZE = "raise_batch_size", "Raise the batch size, or take a smaller or shared GPU."
    USE_GPU = "use_gpu", "Check that the script places the model on the GPU, and that it needs one."
    FREE_GPU = (
        "free_gpu",
        "Save what is needed, then end the process that holds the idle GPU's memory.",
        "Find out which process held the memory, and let the next run end it with its work.",
    )
    FIND_HANG = (
        "find_hang",
        "Take stacks of all ranks (py-spy dump), then restart from the last checkpoint.",
        "Find out what the ranks waited for; set a timeout of collectives and dumps for the next run.",
    )
    FIX_LEAK = "fix_leak", "Free what steps keep: losses with their graph, growing lists and caches."
    SAVE_MEMORY = "save_memory", "Use less GPU memory: activation checkpointing, a smaller batch, shorter inputs."
    DEFRAGMENT_MEMORY = "defragment_memory", "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; keep shapes equal."
    REPLACE_NODE = (
        "replace_node",
        "Restart from the last checkpoint on another node, and replace this one.",
        "Replace the node before the next run, and check what this GPU computed.",
    )
    COOL_NODE = "cool_node", "Have cooling or power of the node repaired, or replace it."
    BALANCE_RANKS = "balance_ranks", "Split data and model evenly; see what differs on the slower GPU, rank or node."
    START_DDP = "start_ddp", "Use DistributedDataParallel, one process a GPU, with the NCCL backend."
    OVERLAP_COMMUNICATION = "overlap_communication", "Overlap communication with computation, or send less."

    FUSE_KERNELS = "fuse_kernels", "Launch fewer, larger kernels: torch.compile, CUDA graphs, fused optimizers."
    REMOVE_SYNCS = "remove_syncs", "Remove .item(), .cpu() and print of tensors from the step."
    LOWER_PRECISION = "lower_precision", "Compute in BF16 or FP16 (torch.autocast), and allow TF32 for the rest."
    FASTER_OPERATORS = "faster_operators", "Change the slow operator's shapes, layout or kernel, as explain says."
    BALANCE_EXPERTS = "balance_experts", "Balance tokens over experts, and route more of them at once."

    GO_BACK = (
        "go_back",
        "Stop, go back to a checkpoint before this step, then lower the learning rate.",
        "Use no checkpoint from this step on; lower the learning rate of the next run.",
    )
    LOWER_LEARNING_RATE = "lower_learning_rate", "Lower the learning rate, lengthen its warm-up, or clip gradients."
    CHANGE_LEARNING_RATE = (
        "change_learning_rate",
        "Change the learning rate or its schedule, or stop early.",
        "Change the learning rate or its schedule in the next run, or let that end earlier.",
    )
    STOP_EARLY = (
        "stop_early",
        "Stop early and keep the best checkpoint; use more data or regularisation.",
        "Use the best checkpoint; let the next run end earlier, with more data or regularisation.",
    )
    CHECK_TRAINING_LOOP = "check_training_loop", "Fit ten samples first; check optimizer, loss, labels, frozen parts."
    FIX_INITIALISATION = "fix_initialisation", "Initialise each layer for its fan-in and activation, or normalise."
    CHANGE_ACTIVATIONS = "change_activations", "Use activations that keep gradients, shortcuts, normalisation."
    CHECK_INPUTS = "check_inputs", "Check inputs and labels: scale, padding, tokens, and whether they belong together."
    BALANCE_CLASSES = "balance_classes", "Draw classes evenly or weight the loss; look at labels of confused classes."
    FIX_FEATURES = "fix_features", "Check the dominant feature for a leak of the label, and limit the trees' depth."
    SYNC_RANKS = (
        "sync_ranks",
        "Stop, go back to a checkpoint, and find the rank whose parameters differ.",
        "Use no checkpoint from this step on, and find the rank whose parameters differ.",
    )
    FIX_SEEDS = "fix_seeds", "Compare seeds, data order and versions of the runs from the first step that differs."
