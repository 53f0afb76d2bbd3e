"""Faults by kind: what is planted, and what must be named. Labels were written before any rule judged a trace.

A fault wastes a share of the step: ``weak`` is just worth a person's time.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.verdicts.kernels import gpu_faults as gpu
from tests.verdicts.kernels import host_faults as host
from tests.verdicts.kernels import job_faults as job_of
from tests.verdicts.kernels.healthy import planned
from tests.verdicts.kernels.machine import Job
from tests.verdicts.kernels.planting import Plant, slow

# Share of the step that is wasted.
STRENGTHS = {"weak": 0.12, "medium": 0.25, "strong": 0.5}


@dataclass(frozen=True)
class Fault:
    """A kind of fault: its training, what it does, rules of which any is right, and what one of them must name."""

    plant: Plant
    rules: frozenset[str]
    names: str
    model: str = "transformer"
    gpu: str = "A100"
    ranks: int = 1
    steps: int = 6


def rules_named(*names: str) -> frozenset[str]:
    return frozenset(names)


SYNC = rules_named("SyncStall", "PageableCopy", "GpuGap")
HOST = rules_named("LaunchBound", "SmallKernelStorm", "SyncStall", "GpuGap")
PRECISION = rules_named("LowPrecisionUnused", "TensorCoresIdle", "SlowOperators")
OPERATORS = rules_named("SlowOperators")
SINGLE = rules_named("TraceStepOutlier", "GpuGap")
MEET = rules_named("ExposedCommunication")

FAULTS: dict[str, Fault] = {
    "data loader is slow": Fault(host.loader, rules_named("LoaderBound"), "data loader", "resnet"),
    "one loader's worker is slow": Fault(
        host.slow_worker, rules_named("LoaderBound", *SINGLE), "data ?loader", "resnet", steps=12
    ),
    "batches are put together in the step": Fault(
        host.collate, rules_named("GpuGap", "LaunchBound", "SyncStall"), "aten::(stack|cat)", "gan"
    ),
    ".item() in each layer": Fault(host.waiting("aten::item", 20), SYNC, "aten::(item|_local_scalar_dense)"),
    "the loss is printed": Fault(host.printed, SYNC, "aten::(item|_local_scalar_dense)", "resnet", "H100"),
    "nonzero in each layer": Fault(host.nonzero, SYNC, "aten::nonzero", "recommender"),
    "metrics on the host": Fault(host.metrics, SYNC, "aten::(copy_|_to_copy|topk)", "resnet", "L4"),
    "torch.cuda.synchronize to take times": Fault(
        host.waiting("", 12, "cudaDeviceSynchronize"), SYNC, "DeviceSynchronize", "transformer", "MI300X"
    ),
    "the scaler reads found_inf": Fault(
        host.waiting("aten::item", 2), SYNC, "aten::(item|_local_scalar_dense)", "gan", "A100"
    ),
    "norms are clipped one by one": Fault(host.clipped, HOST, "aten::(linalg_vector_norm|item|_local_scalar_dense)"),
    "copies from pageable memory": Fault(
        host.pageable,
        rules_named("PageableCopy", "MemcpyBound", "SyncStall"),
        "Pageable -> Device",
        "recommender",
        "H200",
    ),
    "optimizer state on the host": Fault(host.offloaded, rules_named("MemcpyBound"), "Memcpy (HtoD|DtoH)"),
    "many small copies": Fault(
        host.many_copies, rules_named("MemcpyBound", *HOST), "Memcpy HtoD|aten::copy_", "recommender"
    ),
    "storm of launches": Fault(host.storm, HOST, "elementwise_kernel|aten::(mul|add|div|sub)", "gan", "H100"),
    "Python between launches": Fault(
        host.python, rules_named("LaunchBound", "GpuGap"), "GPU idle", "transformer", "H100"
    ),
    "optimizer with a loop": Fault(
        host.unfused_optimizer,
        HOST,
        r"Optimizer\.step|aten::(mul_|lerp_|addc...?_|sqrt|div_|add_)|(mul_|lerp_|addc...?_|sqrt|div_|add_)_functor",
        "resnet",
    ),
    "collector of garbage pauses the host": Fault(
        host.paused(every=3),
        rules_named("GpuGap", "TraceStepOutlier", "SyncStall"),
        "nothing that was recorded|slow step",
        steps=12,
    ),
    "checkpoint in a step": Fault(
        host.checkpoint,
        rules_named("TraceStepOutlier", "GpuGap", "SyncStall", "PageableCopy", "MemcpyBound"),
        "save_checkpoint|Memcpy DtoH|slow step|aten::copy_",
        steps=12,
    ),
    "evaluation in a step": Fault(
        host.evaluated, rules_named("TraceStepOutlier"), "slow step", "resnet", "A100", steps=12
    ),
    "one slow step": Fault(host.outlier, rules_named("TraceStepOutlier"), "slow step", "gan", "H200", steps=12),
    "recompilation in steps": Fault(host.recompiled, SINGLE, "compile|slow step", "transformer", "H100", steps=12),
    "graph breaks": Fault(
        host.graph_breaks,
        rules_named("SyncStall", "LaunchBound", "GpuGap"),
        "TorchDynamo|Synchronize",
        "transformer",
        "H100",
    ),
    "allocator frees and asks again": Fault(
        host.retried, rules_named("SyncStall", "GpuGap", "LaunchBound"), "cudaFree|cudaMalloc|DeviceSynchronize"
    ),
    "products in FP32": Fault(gpu.fp32_products, PRECISION, "sgemm"),
    "TF32 is off": Fault(gpu.without_tf32, PRECISION, "sgemm", "recommender", "A100"),
    "convolutions in FP32": Fault(gpu.fp32_convolutions, PRECISION, "implicit_gemm_f32f32", "resnet"),
    "activations in FP64": Fault(
        gpu.fp64,
        rules_named("LowPrecisionUnused", "SlowOperators"),
        "double|aten::(gelu|add)",
        "transformer",
        "H100",
    ),
    "vocabulary of 50257": Fault(gpu.vocabulary, OPERATORS, "50257"),
    "batch too small for the GPU": Fault(
        gpu.small_batch, rules_named("SmUnderfilled", "SlowOperators"), "gemm|aten::mm", "recommender"
    ),
    "attention in its math form": Fault(
        gpu.math_attention, OPERATORS, "attention_math|aten::(_softmax|bmm)", "transformer", "A100"
    ),
    "activations written out": Fault(gpu.unfused, OPERATORS, "aten::(pow|mul|add|tanh)"),
    "attention is slow": Fault(
        slow("_flash_attention_forward"), OPERATORS, "_flash_attention_forward", "transformer", "H200"
    ),
    "attention's backward pass is slow": Fault(
        slow("_flash_attention_backward"), OPERATORS, "_flash_attention_backward", "transformer", "MI300X"
    ),
    "heads of an odd width": Fault(
        gpu.added(gpu.HEADS, repeats=4), OPERATORS, "_flash_attention_forward", "transformer", "A100"
    ),
    "gradient of an embedding": Fault(
        slow("embedding_dense_backward"), OPERATORS, "embedding_dense_backward", "recommender"
    ),
    "gradient by an index": Fault(
        gpu.added(gpu.INDEXED, repeats=2), OPERATORS, "index_put|indexing_backward", "transformer", "H100"
    ),
    "layer norm is slow": Fault(slow("native_layer_norm$"), OPERATORS, "native_layer_norm", "transformer", "L4"),
    "layer norm's backward pass is slow": Fault(
        slow("native_layer_norm_backward"), OPERATORS, "native_layer_norm_backward", "transformer", "A100"
    ),
    "sum over the wrong axis": Fault(gpu.added(gpu.SUM, repeats=3), OPERATORS, "aten::sum", "resnet", "H100"),
    "batch norm is slow": Fault(slow("batch_norm$"), OPERATORS, "batch_norm", "resnet", "MI300X"),
    "softmax of the loss is slow": Fault(slow("_log_softmax"), OPERATORS, "_log_softmax", "transformer", "H200"),
    "images are turned round": Fault(gpu.transposed, OPERATORS, "convolution|nchwToNhwc", "resnet", "H100"),
    "convolution by channel": Fault(
        gpu.added(gpu.DEPTHWISE, repeats=4), OPERATORS, "_conv_depthwise2d", "resnet", "A100"
    ),
    "products of low rank": Fault(gpu.added(gpu.LOW_RANK, repeats=6), OPERATORS, "aten::mm", "transformer", "H100"),
    "products with few tiles": Fault(
        gpu.added(gpu.FEW_TILES, repeats=3), OPERATORS | {"SmUnderfilled"}, "aten::mm|gemm", "recommender", "H100"
    ),
    "experts with few rows": Fault(
        gpu.added(gpu.EXPERTS, repeats=2), OPERATORS, "fused_experts", "transformer", "H100"
    ),
    "experts with uneven rows": Fault(gpu.uneven_experts, OPERATORS, "groups 1[46]", "transformer", "H100"),
    "all-reduce behind the backward pass": Fault(
        job_of.exposed("allreduce", "AllReduce_Sum_bf16_RING_LL"), MEET, "all_?reduce", "resnet", "H100", ranks=2
    ),
    "reduce-scatter in the way": Fault(
        job_of.exposed("_reduce_scatter_base", "ReduceScatter_Sum_bf16_RING_LL", count=5),
        MEET,
        "reduce_?scatter",
        "transformer",
        "H100",
        ranks=2,
    ),
    "all-gather without prefetch": Fault(
        job_of.exposed("_allgather_base", "AllGather_RING_LL", count=10),
        MEET,
        "all_?gather",
        "transformer",
        "MI300X",
        ranks=2,
    ),
    "batch norm of all ranks": Fault(
        job_of.exposed("all_gather", "AllGather_RING_LL", count=18), MEET, "all_?gather", "resnet", "A100", ranks=2
    ),
    "exchange of embeddings in the way": Fault(
        job_of.exposed("all_to_all", "SendRecv", count=2), MEET, "all_?to_?all|SendRecv", "recommender", "A100", ranks=2
    ),
    "a rank is late": Fault(job_of.late, rules_named("LateRank"), "Rank 2", "resnet", "A100", ranks=4),
    "a rank's clock is slow": Fault(
        job_of.slow_clock, rules_named("LateRank", "SlowRank"), "Rank 1", "transformer", "H100", ranks=4
    ),
    "experts are not balanced": Fault(
        job_of.imbalanced,
        rules_named("LateRank", "SlowRank"),
        r"Rank 3(.|\n)*exchange_ratio",
        "transformer",
        "H200",
        ranks=4,
    ),
    "DataParallel": Fault(
        job_of.data_parallel, rules_named("WrongParallel", "SyncStall", "GpuGap"), "DataParallel", "resnet", "A100"
    ),
    "gradients through the host": Fault(job_of.gloo, rules_named("WrongParallel"), "gloo", "gan", "A100", ranks=2),
    "memory is nearly full": Fault(job_of.full, rules_named("GpuMemoryFull"), "GPU 0|gpu0", "transformer", "A100"),
    "memory is in parts": Fault(
        job_of.fragmented, rules_named("GpuMemoryFragmented"), "GPU 0|gpu0|allocated", "transformer", "H100"
    ),
    "memory grows": Fault(job_of.growing, rules_named("GpuMemoryGrows"), "bytes kept|growth", "gan", "A100", steps=12),
}


def faulty(fault: Fault, share: float, seed: int) -> Job:
    """Return the training with the fault in it."""
    job = planned(fault.model, fault.gpu, ranks=fault.ranks, steps=fault.steps, seed=seed)
    return fault.plant(job, share)


# Healthy trainings in damaged files: no finding may be sure.
DAMAGED: dict[str, Callable[[Job], Job]] = {
    "file cut at a third": lambda job: replace(job, cut=0.67),
    "file cut at its half": lambda job: replace(job, cut=0.5),
    "file cut near its end": lambda job: replace(job, cut=0.05),
    "a hundredth of the kernels lost": lambda job: replace(job, lost=0.01),
    "a tenth of the kernels lost": lambda job: replace(job, lost=0.1),
    "half of the kernels lost": lambda job: replace(job, lost=0.5),
    "a tenth of the launches lost": lambda job: replace(job, unlaunched=0.1),
    "all launches lost": lambda job: replace(job, unlaunched=1.0),
}


def damaged() -> dict[str, Job]:
    """Return the damaged files by name."""
    pairs = (("transformer", "H100"), ("resnet", "A100"), ("recommender", "MI300X"), ("gan", "L4"))
    return {
        f"{model} on {gpu}, {name}": change(planned(model, gpu, seed=400 + at))
        for at, (model, gpu) in enumerate(pairs)
        for name, change in DAMAGED.items()
    }
