"""The faults in other forms than PyTorch's trace on CUDA: which a form can carry, and what must be named there.

Labels were written before any rule judged a form.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.verdicts.kernels.faults import FAULTS, Fault, rules_named
from tests.verdicts.kernels.in_nsight import in_nsight
from tests.verdicts.kernels.in_rocm import in_rocm
from tests.verdicts.kernels.in_xla import in_xla
from tests.verdicts.kernels.machine import Recording
from trainguard.kernels.columns import Trace

# A strong fault is not harder to find than a medium one.
STRENGTHS = ("weak", "medium")


@dataclass(frozen=True)
class Form:
    """How recordings are written and read.

    labels: What differs from the label in PyTorch's trace: rules where the form knows less, and what is named.
    without: Kinds that the form cannot carry, with the reason.
    gpus: The GPU in the place of one that the form is not for; empty for all.
    """

    read: Callable[[Recording, Path], Trace]
    labels: Mapping[str, tuple[frozenset[str] | None, str]]
    without: Mapping[str, Sequence[str]]
    gpus: Mapping[str, str]

    @property
    def is_amd(self) -> bool:
        return "" in self.gpus

    def faults(self) -> dict[str, Fault]:
        left_out = {kind for kinds in self.without.values() for kind in kinds}
        return {kind: self._labelled(kind, fault) for kind, fault in FAULTS.items() if kind not in left_out}

    def _labelled(self, kind: str, fault: Fault) -> Fault:
        rules, names = self.labels.get(kind, (None, fault.names))
        gpu = self.gpus.get(fault.gpu, self.gpus.get("", fault.gpu))
        return replace(fault, rules=rules or fault.rules, names=names, gpu=gpu)


_PYTORCHS_MEMORY = ("memory is nearly full", "memory is in parts", "memory grows")
_SYNC_OR_COPIES = rules_named("SyncStall", "PageableCopy", "MemcpyBound", "GpuGap")
_PRECISION = rules_named("LowPrecisionUnused", "TensorCoresIdle")
_FILLING = rules_named("SmUnderfilled")
_WAITS = "block_until_ready|Memcpy ?DtoH"
_READS = r"block_until_ready|GPU idle"

FORMS: dict[str, Form] = {
    "Nsight Systems": Form(
        read=in_nsight,
        labels={"experts are not balanced": (None, "Rank 3")},
        without={
            "events of PyTorch's allocator": _PYTORCHS_MEMORY,
            "arguments that are no tensors, such as strides": ("convolution by channel", "gradient of an embedding"),
        },
        gpus={"MI300X": "H200"},
    ),
    "XLA": Form(
        read=in_xla,
        labels={
            "batches are put together in the step": (None, "GPU idle"),
            ".item() in each layer": (None, _READS),
            "the loss is printed": (None, _WAITS),
            "nonzero in each layer": (None, _WAITS),
            "metrics on the host": (None, _WAITS),
            "torch.cuda.synchronize to take times": (None, "CtxSynchronize|block_until_ready"),
            "the scaler reads found_inf": (None, _READS),
            "norms are clipped one by one": (None, r"block_until_ready|reduce_fusion|GPU idle"),
            "many small copies": (None, "Memcpy HtoD|GPU idle"),
            "storm of launches": (None, "fusion|GPU idle"),
            "optimizer with a loop": (None, "fusion|GPU idle"),
            "allocator frees and asks again": (None, "cuMemFree|cuMemAlloc|CtxSynchronize"),
            "experts are not balanced": (None, "Rank 3"),
            "products in FP32": (_PRECISION, "sgemm"),
            "TF32 is off": (_PRECISION, "sgemm"),
            "convolutions in FP32": (_PRECISION, "implicit_gemm_f32f32"),
            "batch too small for the GPU": (_FILLING, "gemm"),
            "products with few tiles": (_FILLING, "gemm"),
        },
        without={
            "no operators with shapes": (
                "vocabulary of 50257", "attention in its math form", "activations written out", "attention is slow",
                "attention's backward pass is slow", "heads of an odd width", "gradient of an embedding",
                "gradient by an index", "layer norm is slow", "layer norm's backward pass is slow",
                "sum over the wrong axis", "batch norm is slow", "softmax of the loss is slow",
                "images are turned round", "convolution by channel", "products of low rank", "experts with few rows",
                "experts with uneven rows",
            ),
            "no types of elements in the names of fusions": ("activations in FP64",),
            "what only PyTorch does": ("graph breaks", "DataParallel", "gradients through the host"),
            "events of PyTorch's allocator": ("memory is in parts", "memory grows"),
        },
        gpus={"MI300X": "H200"},
    ),
    "ROCm": Form(
        read=in_rocm,
        labels={
            "torch.cuda.synchronize to take times": (None, "DeviceSynchronize"),
            "copies from pageable memory": (_SYNC_OR_COPIES, "Memcpy HtoD"),
            "optimizer state on the host": (None, "Memcpy (HtoD|DtoH)"),
            "products in FP32": (None, "Cijk_Alik_Bljk_SB|aten::(mm|addmm)"),
            "TF32 is off": (None, "Cijk_Alik_Bljk_SB|aten::(mm|addmm)"),
            "convolutions in FP32": (None, "fp32|convolution"),
            "batch too small for the GPU": (rules_named("SlowOperators"), "aten::mm"),
            "products with few tiles": (rules_named("SlowOperators"), "aten::mm"),
            "images are turned round": (None, "convolution|transpose"),
            "allocator frees and asks again": (None, "hipFree|hipMalloc|DeviceSynchronize"),
        },
        without={},
        gpus={"": "MI300X"},
    ),
}  # fmt: skip
