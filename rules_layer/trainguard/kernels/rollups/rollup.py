"""The GPU's time by family, phase and module, and how much of its arithmetic a rank uses."""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from trainguard.core.text import one_line
from trainguard.kernels.columns import Bools, Floats, Ints, WorkKind
from trainguard.kernels.costs import UNKNOWN, read_inputs
from trainguard.kernels.device_entries import ArithmeticEntry, FamilyEntry, ModuleEntry, PeaksEntry, RollupEntry
from trainguard.kernels.formulas.attention import ATTENTION
from trainguard.kernels.formulas.registry import Recalled, is_product
from trainguard.kernels.names.families import MATRIX, RowFamily, collective_of
from trainguard.kernels.names.kernel_names import Precision
from trainguard.kernels.rollups.phases import BACKWARD, FORWARD, PHASES, modules_of, phases_of
from trainguard.kernels.times.metrics import RankMetrics
from trainguard.kernels.work import KernelLine, exact_sum

MOST_MODULES = 200
# The backward pass takes two products for each one forward: PaLM (arXiv 2204.02311), appendix B.
BACKWARD_FACTOR = 2

_FAMILIES = tuple(RowFamily)
_PRECISIONS = tuple(Precision)


def rollup_of(metrics: RankMetrics, kernels: Sequence[KernelLine], peaks: PeaksEntry | None) -> RollupEntry:
    rows = np.flatnonzero(metrics.in_window)
    lasted = metrics.trace.gpu.end[rows] - metrics.trace.gpu.start[rows]
    family, precision = _by_name(metrics, kernels)
    phase = phases_of(metrics)[rows]
    flops, bounded = _flops(metrics, rows, lasted, family, precision)
    matrix = np.isin(family[rows], _MATRIX)
    whole = exact_sum(lasted[matrix])
    covered = exact_sum(lasted[matrix & ~np.isnan(flops) & ~bounded]) / whole if whole else 0.0
    paths, module = modules_of(metrics)
    modules = _modules(paths, module[rows], lasted, phase == BACKWARD)
    return RollupEntry(
        families=_families(metrics, rows, lasted, family[rows], phase, flops),
        modules=modules[:MOST_MODULES],
        modules_left_out=max(len(modules) - MOST_MODULES, 0),
        arithmetic=_used(metrics, covered, precision[rows], phase, flops, peaks),
    )


_MATRIX = np.array([place for place, family in enumerate(_FAMILIES) if family in MATRIX])


def _by_name(metrics: RankMetrics, kernels: Sequence[KernelLine]) -> tuple[Ints, Ints]:
    trace = metrics.trace
    family = np.full(len(trace.gpu), _FAMILIES.index(RowFamily.COPY), dtype=np.int64)
    precision = np.full(len(trace.gpu), _PRECISIONS.index(Precision.UNKNOWN), dtype=np.int64)
    for line in kernels:
        family[line.rows] = _FAMILIES.index(RowFamily(line.family))
        precision[line.rows] = _PRECISIONS.index(Precision(line.precision))
    return family, precision


_BYTES = {Precision.FP64: 8, Precision.FP32: 4, Precision.TF32: 4, Precision.BF16: 2, Precision.FP16: 2}


def _operations(recalled: Recalled, operator: str, recorded: str, precision: Precision) -> tuple[float, bool]:
    """Return the least operations of a call of a product, -1 where they are not known, and whether it has more."""
    inputs = read_inputs(recorded, _BYTES.get(precision, UNKNOWN)) if recorded and is_product(operator) else None
    # Half of the scores count behind a causal mask: without a record of the mask they are unknown.
    if inputs is None or (operator in ATTENTION and not inputs.has_values):
        return UNKNOWN, False
    once = recalled.cost(operator, inputs)
    return (UNKNOWN, False) if once is None else (float(once.flops), once.most_flops is not None)


def _flops(metrics: RankMetrics, rows: Ints, lasted: Ints, family: Ints, precision: Ints) -> tuple[Floats, Bools]:
    """Return the operations of each row: those of its operator at its longest product's row; NaN where unknown.

    Rows of operators of which shapes give bounds alone have the least, and are marked.
    """
    trace, operator = metrics.trace, metrics.operator[rows]
    found = np.where(np.isin(family[rows], _MATRIX), np.nan, 0.0)
    known = np.flatnonzero((operator >= 0) & (trace.gpu.kind[rows] == WorkKind.COMPUTE))
    matrix = np.isin(family[rows[known]], _MATRIX)
    order = known[np.lexsort((-lasted[known], ~matrix, operator[known]))]
    callers, first = np.unique(operator[order], return_index=True)
    lead = order[first]
    texts = len(trace.names) + 1
    names = trace.operators.name[callers].astype(np.int64) * texts + trace.operator_inputs[callers] + 1
    sorts, which = np.unique(names * len(_PRECISIONS) + precision[rows[lead]], return_inverse=True)
    recalled = Recalled.of(trace)
    costs = [
        _operations(recalled, trace.names[name], trace.names[inputs - 1] if inputs else "", _PRECISIONS[kind])
        for both, kind in (divmod(each, len(_PRECISIONS)) for each in sorts.tolist())
        for name, inputs in (divmod(both, texts),)
    ]
    known_flops, bounds = np.array(costs, dtype=np.float64).reshape(-1, 2)[which].T
    found[lead] = known_flops
    # Rows beside the longest one of a known operator are part of it.
    costed = callers[found[lead] >= 0]
    beside = np.isin(operator, costed)
    beside[lead] = False
    found[beside] = 0.0
    found[found < 0] = np.nan
    return found, np.isin(operator, callers[bounds > 0])


def _families(
    metrics: RankMetrics, rows: Ints, lasted: Ints, family: Ints, phase: Ints, flops: Floats
) -> list[FamilyEntry]:
    trace = metrics.trace
    collectives = [""]
    sort = np.zeros(len(rows), dtype=np.int64)
    communicating = np.flatnonzero(trace.gpu.kind[rows] == WorkKind.COMMUNICATION)
    for name in np.unique(trace.gpu.name[rows[communicating]]).tolist():
        mine = communicating[trace.gpu.name[rows[communicating]] == name]
        for number in np.unique(trace.gpu.collective[rows[mine]]).tolist():
            called = collective_of(trace.collectives[number].name) if number >= 0 else ""
            said = called or collective_of(trace.names[name])
            if said not in collectives:
                collectives.append(said)
            sort[mine[trace.gpu.collective[rows[mine]] == number]] = collectives.index(said)
    key = (family * len(collectives) + sort) * len(PHASES) + phase
    found = []
    for each in np.unique(key).tolist():
        mine = key == each
        rest, at = divmod(each, len(PHASES))
        place, which = divmod(rest, len(collectives))
        sized = _FAMILIES[place] in MATRIX and not np.isnan(flops[mine]).all()
        found.append(
            FamilyEntry(
                family=_FAMILIES[place].value,
                collective=collectives[which],
                phase=PHASES[at],
                count=int(mine.sum()),
                total_ns=exact_sum(lasted[mine]),
                flops=round(float(np.nansum(flops[mine]))) if sized else None,
            )
        )
    return sorted(found, key=lambda entry: (-entry.total_ns, entry.family, entry.phase))


def _modules(paths: list[str], module: Ints, lasted: Ints, backward: Bools) -> list[ModuleEntry]:
    mine = module >= 0
    counts = np.bincount(module[mine], minlength=len(paths)).tolist()
    times = np.zeros((2, len(paths)), dtype=np.int64)
    np.add.at(times[0], module[mine], lasted[mine])
    np.add.at(times[1], module[mine & backward], lasted[mine & backward])
    found = [
        ModuleEntry(path=one_line(path), count=count, total_ns=total, backward_ns=part)
        for path, count, total, part in zip(paths, counts, *times.tolist(), strict=True)
        if count
    ]
    return sorted(found, key=lambda entry: (-entry.total_ns, entry.path))


def _used(
    metrics: RankMetrics, covered: float, precision: Ints, phase: Ints, flops: Floats, peaks: PeaksEntry | None
) -> ArithmeticEntry | None:
    """Return how much of the peak a rank's products use; None without one, or where the GPU's peak is unknown."""
    known = ~np.isnan(flops)
    computed = np.bincount(precision[known], weights=flops[known], minlength=len(_PRECISIONS))
    executed = float(computed.sum())
    if peaks is None or not executed or not metrics.window.length:
        return None
    most = _PRECISIONS[int(computed.argmax())]
    peak = peaks.tflops.get(most.value)
    if peak is None:
        return None
    steps = max(len(metrics.window.steps), 1)
    trained = bool((phase == BACKWARD).any())
    forward = float(flops[known & (phase == FORWARD)].sum())
    model = min((1 + BACKWARD_FACTOR) * forward, executed) if trained else executed
    made = ArithmeticEntry(
        precision=most.value,
        peak_tflops=peak,
        step_ns=round(metrics.window.length / steps),
        gpus=metrics.counted,
        executed_flops=round(executed / steps),
        model_flops=round(model / steps),
        model_source="forward" if trained else "executed",
        covered_share=round(covered, 4),
        hfu=0.0,
        mfu=0.0,
        peak_confirmed=peaks.confirmed,
    )
    return _rated(made)


def with_model_flops(found: ArithmeticEntry, flops: float) -> ArithmeticEntry:
    """Return the use of arithmetic by the operations of a step of the model on this rank, as its user gives them."""
    return _rated(replace(found, model_flops=round(flops), model_source="given"))


def _rated(found: ArithmeticEntry) -> ArithmeticEntry:
    possible = found.peak_tflops * 1e12 * found.gpus * found.step_ns / 1e9
    return replace(found, hfu=round(found.executed_flops / possible, 4), mfu=round(found.model_flops / possible, 4))
