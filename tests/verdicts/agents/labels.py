"""What an engineer would change first, by the label of a planted fault; written without looking at answers."""

from collections.abc import Mapping

HEALTHY = frozenset({"nothing"})

# By the kind of a labelled profile's fault.
PROFILES: Mapping[str, frozenset[str]] = {
    "idle from the start": frozenset({"use_gpu", "free_gpu"}),
    "under-used GPUs": frozenset({"raise_batch_size"}),
    "idle in part": frozenset({"find_waits", "pause_less"}),
    "late start": frozenset({"shorten_start"}),
    "hang": frozenset({"find_hang", "free_gpu"}),
    "loader, cores full": frozenset({"feed_faster"}),
    "loader, cores free": frozenset({"feed_faster", "find_waits"}),
    "loader, disk": frozenset({"faster_storage"}),
    "dead GPU": frozenset({"balance_ranks", "use_gpu", "replace_node"}),
    "GPU that stops": frozenset({"read_job_log", "find_hang"}),
    "memory that fills up": frozenset({"fix_leak", "save_memory"}),
    "slow GPU": frozenset({"balance_ranks"}),
    "slow node": frozenset({"balance_ranks", "faster_storage", "feed_faster"}),
    "dead node": frozenset({"use_gpu", "find_hang", "free_gpu", "balance_ranks"}),
    "small batch": frozenset({"raise_batch_size"}),
    "leak": frozenset({"fix_leak"}),
    "memory leak": frozenset({"fix_leak"}),
    "slow steps": frozenset({"fix_slow_steps"}),
    "hung collective": frozenset({"find_hang"}),
    "memory held while idle": frozenset({"free_gpu"}),
    "memory held after training": frozenset({"free_gpu"}),
    "broken GPU": frozenset({"replace_node"}),
    "lost GPU": frozenset({"replace_node"}),
    "throttled GPU": frozenset({"cool_node"}),
    "low SM activity": frozenset({"raise_batch_size", "fuse_kernels"}),
    "straggler": frozenset({"balance_ranks"}),
    "heavy checkpoints": frozenset({"pause_less"}),
}

# By the kind of a planted trace's fault.
TRACES: Mapping[str, frozenset[str]] = {
    "data loader is slow": frozenset({"feed_faster"}),
    ".item() in each layer": frozenset({"remove_syncs"}),
    "the loss is printed": frozenset({"remove_syncs"}),
    "copies from pageable memory": frozenset({"pin_memory"}),
    "optimizer state on the host": frozenset({"copy_less"}),
    "storm of launches": frozenset({"fuse_kernels"}),
    "Python between launches": frozenset({"fuse_kernels"}),
    "products in FP32": frozenset({"lower_precision"}),
    "convolutions in FP32": frozenset({"lower_precision"}),
    "one slow step": frozenset({"fix_slow_steps"}),
}

# By the kind of a planted fault of a parallel job.
PARALLEL: Mapping[str, frozenset[str]] = {
    "rank": frozenset({"balance_ranks"}),
    "host": frozenset({"balance_ranks"}),
    "copy": frozenset({"balance_ranks"}),
    "transfers": frozenset({"overlap_communication"}),
}

HANGS = ("killed", "lock", "slow_loader", "other_operation", "skipped", "gpu")

# By the name of a curve.
CURVES: Mapping[str, frozenset[str]] = {
    "nan": frozenset({"go_back", "lower_learning_rate"}),
    "diverged": frozenset({"go_back", "lower_learning_rate"}),
    "flat": frozenset({"check_training_loop", "change_learning_rate"}),
    "healthy": HEALTHY,
}
