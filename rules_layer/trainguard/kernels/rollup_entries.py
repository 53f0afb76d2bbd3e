"""Parts of ``kernels.json`` that say where the time goes, and how much of the GPU's arithmetic is used."""

from typing import Literal

import msgspec


class FamilyEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The GPU's rows of one family and phase; rows at once count each.

    family: As of `KernelEntry`; ``copy`` has copies and settings of memory, too.
    collective: The sort of a collective, such as ``all_reduce``; empty of what is none or is not known.
    phase: What launched it: ``forward``, ``backward`` or ``optimizer``; ``unknown`` where the trace does not say it.
    flops: Arithmetic of matrix products, convolutions and attention, as far as it is known; else None.
    """

    family: str
    collective: str
    phase: Literal["forward", "backward", "optimizer", "unknown"]
    count: int
    total_ns: int
    flops: int | None


class ModuleEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The GPU's rows that a module launched, those of modules within it left out.

    path: Classes and numbers of the modules from the outermost one on, joined by ``/``. In a trace without modules,
        the names of annotations.
    backward_ns: The part of ``total_ns`` that computes gradients, as far as sequence numbers say whose.
    """

    path: str
    count: int
    total_ns: int
    backward_ns: int = 0


class PeaksEntry(msgspec.Struct, frozen=True, kw_only=True):
    """What a GPU can do at most, without sparsity, as its maker says: TFLOP/s by precision, and 10^9 bytes a second.

    Of integers they are 10^12 operations a second. ``as_of`` is the date of the table, ``YYYY-MM-DD``; ``cache_mb`` is
    the last cache before memory, in 10^6 bytes. ``link_gb_per_s`` is what the links to the GPUs of a node carry in one
    direction, None where there are none, where they join some of the GPUs, or it is not known. ``source`` names the
    document. ``confirmed``: it is the maker's own, and gives the arithmetic of matrix products and the memory's speed;
    else figures are those that others quote, and no finding rests on them.
    """

    gpu: str
    tflops: dict[str, float]
    memory_gb_per_s: float
    as_of: str
    cache_mb: float
    link_gb_per_s: float | None = None
    source: str = ""
    confirmed: bool = False


class ArithmeticEntry(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the GPU's arithmetic a step uses; without steps, the window.

    precision: In which most operations are; the peak is that of it.
    gpus: GPUs that the trace's operations are on.
    executed_flops: Operations of matrix products, convolutions and attention that ran, by their shapes.
    model_flops: Those that the model needs: three times the forward pass, but not more than ran; ``model_source`` is
        ``executed`` without a backward pass, and ``given`` where the user gave them.
    covered_share: Time of these kernels whose operations are known; with less than 1 more has run. Of packed sequences
        only bounds are known, of which the least counts.
    peak_confirmed: The maker's own document gives the peak.
    hfu, mfu: Executed operations, and the model's, by what the peak allows in the step's time.
    """

    precision: str
    peak_tflops: float
    step_ns: int
    gpus: int
    executed_flops: int
    model_flops: int
    model_source: Literal["forward", "executed", "given"]
    covered_share: float
    hfu: float
    mfu: float
    peak_confirmed: bool = False


class RollupEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Where a rank's time goes, most first; ``modules_left_out`` counts those with the least time.

    arithmetic: None where no product's operations are known, or not the GPU's peak.
    """

    families: list[FamilyEntry] = []
    modules: list[ModuleEntry] = []
    modules_left_out: int = 0
    arithmetic: ArithmeticEntry | None = None
