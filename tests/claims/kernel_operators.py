"""Recomputes what operators of a rank's trace cost by their shapes, and what the rule over slow ones should find.

Operators lie on one thread. Of those that `random_kernels` writes the arithmetic is that of a product, or one operation
an element; the only card whose peaks a document of its maker confirms is the A100.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, prod

from tests.claims.kernel_files import Event
from tests.claims.kernel_trace import KernelTrace

LEAST, REACHED_OF_ALL, SHORTEST_NS = 0.1, 0.6, 10_000
OF_ARITHMETIC, OF_MEMORY = 0.75, 0.85
MATH = "aten::_scaled_dot_product_attention_math"
COPIES = "aten::copy_"
PRODUCT, EXPERTS = "aten::mm", "vllm::outplace_fused_experts"
TURNED = "nchwtonhwc"
GROUPS, UNEVEN = 4, 2.0
# Rows of each expert; the part of the experts without a token.
FEW_ROWS, UNUSED = 16, 0.25

Dims = tuple[tuple[int, ...], ...]

SIZES = {"c10::BFloat16": 2, "float": 4, "double": 8}
# Of a card: operations a second by the bytes of an element, bytes a second, and the bytes of its cache.
RATES = {"NVIDIA A100": ({2: 312e12, 4: 19.5e12, 8: 19.5e12}, 1555e9, 40e6)}

TILE, FULL, SHORTEST_CHAIN = 128, 0.75, 3


@dataclass(frozen=True)
class Called:
    """All calls of an operator with the same inputs, and the kernels that each of them started."""

    name: str
    dims: Dims
    size: int
    kernels_of_calls: tuple[tuple[Event, ...], ...]
    strides: Dims = ()

    @property
    def calls(self) -> int:
        return len(self.kernels_of_calls)

    @property
    def kernels(self) -> tuple[Event, ...]:
        return tuple(each for kernels in self.kernels_of_calls for each in kernels)

    @property
    def lasts(self) -> int:
        """How long its kernels take, nanoseconds."""
        return sum(each.lasts for each in self.kernels)

    @property
    def shapes(self) -> str:
        """Its dimensions as findings write them."""
        return ", ".join("x".join(map(str, each)) for each in self.dims if each)

    @property
    def work(self) -> tuple[int, int]:
        """Operations and bytes of one call."""
        if self.name == PRODUCT:
            (rows, inner), (_, columns) = self.dims
            return 2 * rows * inner * columns, self.size * (rows * inner + inner * columns + rows * columns)
        if self.name == EXPERTS:
            (tokens, wide), (experts, *first), (_, *second), (_, chosen) = self.dims
            weights, rows = prod(first) + prod(second), tokens * chosen
            return 2 * rows * weights, self.size * (min(experts, rows) * weights + 2 * tokens * wide)
        given = [prod(each) for each in self.dims if each]
        if self.name == COPIES:
            return 0, self.size * sum(given)
        return given[0], self.size * (sum(given) + given[0])


@dataclass(frozen=True)
class Found:
    """What the rule should find: how much of the window it measures and can win, its facts, and its evidence."""

    measured: float
    saved: float
    facts: dict[str, float | str]
    lines: list[tuple[str, float]]
    kernels: list[Event]


def operator_of(trace: KernelTrace, kernel: Event) -> Event | None:
    """Return the innermost operator in which a kernel was launched."""
    call = trace.launch_of(kernel)
    if call is None:
        return None
    around = [each for each in trace.operators_at(call.start) if each.start <= call.start < each.end]
    return min(around, key=lambda each: each.lasts, default=None)


def calls_of(trace: KernelTrace) -> list[Called]:
    """Return the operators of a window with what they cost and take."""
    found: dict[tuple[str, Dims, tuple[str, ...], Dims], list[tuple[Event, Event]]] = {}
    for kernel in trace.kernels:
        operator = operator_of(trace, kernel) if kernel.computes else None
        if operator is not None and operator.dims:
            found.setdefault((operator.name, operator.dims, operator.types, operator.strides), []).append(
                (operator, kernel)
            )
    return [
        Called(name, dims, SIZES[types[0]], _by_call(pairs), strides)
        for (name, dims, types, strides), pairs in found.items()
    ]


def _by_call(pairs: list[tuple[Event, Event]]) -> tuple[tuple[Event, ...], ...]:
    calls: dict[int, list[Event]] = {}
    for operator, kernel in pairs:
        calls.setdefault(id(operator), []).append(kernel)
    return tuple(tuple(kernels) for kernels in calls.values())


@lru_cache(maxsize=8)
def found_of(trace: KernelTrace) -> Found | None:
    """Return what the rule should find on a trace: slow operators, else the first of the forms that costs enough."""
    rates = RATES.get(trace.recording.cards[0].name) if trace.recording.cards else None
    every = [] if rates is None else calls_of(trace)
    fused = [each for each in every if each.name == EXPERTS]
    for found in (
        _slow(trace, every),
        _starved(trace, fused),
        _math(trace),
        _chains(trace, every),
        _turned(trace),
        _unused(trace, fused),
    ):
        if found is not None and found.measured >= LEAST * trace.window:
            return found
    return None


def _needs(trace: KernelTrace, called: Called) -> tuple[float, float]:
    """Return how long arithmetic and memory need at least for all calls, nanoseconds."""
    by_size, memory, _ = RATES[trace.recording.cards[0].name]
    flops, moved = called.work
    return 1e9 * called.calls * flops / by_size[called.size], 1e9 * called.calls * moved / memory


def _slow(trace: KernelTrace, every: list[Called]) -> Found | None:
    slow = []
    for called in every:
        arithmetic, memory = _needs(trace, called)
        good = max(arithmetic / OF_ARITHMETIC, memory / OF_MEMORY)
        if called.lasts < SHORTEST_NS * called.calls:
            continue
        by_memory = memory / OF_MEMORY > arithmetic / OF_ARITHMETIC
        some = called if good < REACHED_OF_ALL * called.lasts else _single(trace, called, good / called.calls)
        if some is not None:
            good *= some.calls / called.calls
            slow.append((some.lasts - good, good / some.lasts, some, by_memory, called.calls))
    if not slow:
        return None
    slow.sort(key=lambda each: -each[0])
    saved = min(sum(each[0] for each in slow) / len(trace.counted), trace.mean(lambda gpu: gpu.computing))
    _, reached, worst, by_memory, calls = slow[0]
    why: dict[str, float | str] = {"slow_calls": worst.calls, "calls": calls}
    if worst.calls == calls:
        why = _of_experts(worst) if worst.name == EXPERTS else {}
        if worst.name == COPIES:
            # Rows of one side are columns of the other, which lie as far apart as a row is long.
            why = {"stride": max(each[-1] for each in worst.strides)}
        if worst.name == PRODUCT:
            why = _groups(trace, every, worst) or _of_product(trace, worst, reached, by_memory=by_memory)
    facts: dict[str, float | str] = {
        "saved_share": saved / trace.window,
        "reached_share": reached,
        "operator": worst.name,
        "shapes": worst.shapes,
        **why,
    }
    lines = [(f"{each[2].name} {each[2].shapes}", float(each[2].lasts)) for each in slow]
    return Found(saved, saved, facts, lines, [kernel for each in slow for kernel in each[2].kernels])


def _single(trace: KernelTrace, called: Called, good: float) -> Called | None:
    """Return the calls that are slow, of an operator that is not, and beside which no GPU communicates."""
    slow = tuple(
        kernels
        for kernels in called.kernels_of_calls
        if good < REACHED_OF_ALL * sum(each.lasts for each in kernels)
        and not any(
            _meets(kernel, other) for kernel in kernels for gpu in trace.gpus for other in gpu.work if other.sends
        )
    )
    return replace(called, kernels_of_calls=slow) if slow else None


def _meets(one: Event, other: Event) -> bool:
    return one.start < other.end and other.start < one.end


def _of_product(trace: KernelTrace, called: Called, reached: float, *, by_memory: bool) -> dict[str, float | str]:
    """Return what the dimensions of a product say: odd, narrow, of few tiles, or of tiles or waves that are not full.

    Of the latter the emptier one is said, where it explains at least six tenths of how slow the product is.
    """
    (rows, inner), (_, columns) = called.dims
    sides, sms = (rows, inner, columns), trace.recording.cards[0].sms
    if inner % 8 or columns % 8:
        padded = [64 * ceil(side / 64) if side % 8 else side for side in (inner, columns)]
        odd = columns if columns % 8 else inner
        return {"odd_size": float(odd), "faster_shape": f"{rows} x {padded[0]} x {padded[1]}"}
    narrow: dict[str, float | str] = {"narrowest": float(min(sides))}
    if by_memory and min(sides) < 64:
        return narrow
    high, wide = ceil(rows / TILE), ceil(columns / TILE)
    said: dict[str, float | str] = {"tiles": high * wide, "multiprocessors": sms}
    if high * wide < sms or by_memory:
        return said | {"tile_side": TILE} if high * wide < sms else narrow
    waves = ceil(high * wide / sms)
    of_tiles, of_waves = rows * columns / (high * wide * TILE**2), high * wide / (waves * sms)
    if min(of_tiles, of_waves) >= FULL or reached < 0.6 * min(of_tiles, of_waves):
        return {}
    if of_tiles <= of_waves:
        full = f"{high * TILE} x {inner} x {wide * TILE}"
        return {"tile_side": TILE, "narrowest": min(rows, columns), "faster_shape": full}
    more, beside = waves * sms // wide, waves * sms // high
    filled = f"{more * TILE} x {inner} x {columns}" if more > high else f"{rows} x {inner} x {beside * TILE}"
    return said | {"faster_shape": filled}


def _groups(trace: KernelTrace, every: list[Called], worst: Called) -> dict[str, float | str]:
    """Return the products of a step in the middle that share a matrix, if they are many and their rows uneven."""
    alike = [each for each in every if (each.name, each.dims[1:2]) == (PRODUCT, worst.dims[1:2])]
    steps = []
    for step in trace.steps:
        own = {id(event) for event in trace.work_of(step)}
        rows = [each.dims[0][0] for each in alike if any(id(kernel) in own for kernel in each.kernels)]
        steps += [rows] if rows else []
    rows = sorted(steps, key=len)[len(steps) // 2] if steps else []
    if len(rows) < GROUPS or max(rows) < UNEVEN * sum(rows) / len(rows):
        return {}
    return {"groups": len(rows), "most_rows": max(rows), "mean_rows": round(sum(rows) / len(rows))}


def _rows(called: Called) -> tuple[int, int]:
    """Return how many experts an operator has, and the rows that they share."""
    return called.dims[1][0], prod(called.dims[3])


def _of_experts(called: Called) -> dict[str, float | str]:
    experts, rows = _rows(called)
    return {"experts": experts, "rows": rows} if rows < FEW_ROWS * experts else {}


def _starved(trace: KernelTrace, fused: list[Called]) -> Found | None:
    """Return experts that share few rows: half of what is no arithmetic can be won."""
    found = sorted((each for each in fused if _of_experts(each)), key=lambda each: -each.lasts)
    if not found:
        return None
    computes = [_needs(trace, each)[0] / OF_ARITHMETIC for each in found]
    measured, facts = _fused(trace, found)
    saved = max(measured - sum(computes) / len(trace.counted), 0.0) / 2.0
    facts |= {"starved_share": measured / trace.window, "compute_share": computes[0] / found[0].lasts}
    return Found(measured, saved, facts | _of_experts(found[0]), _lines(found), _kernels(found))


def _unused(trace: KernelTrace, fused: list[Called]) -> Found | None:
    """Return experts of which memory, and a cache before it, give some alone in the time of a call."""
    _, memory, cache = RATES[trace.recording.cards[0].name] if fused else ({}, 0.0, 0.0)
    found = []
    for called in sorted(fused, key=lambda each: -each.lasts):
        (tokens, wide), (experts, *_), _, (_, chosen) = called.dims
        weights = called.work[1] - 8 * tokens * wide  # as if a token's elements had four bytes
        given = called.lasts / called.calls * memory / 1e9 + cache
        used = int(experts * given / weights) if weights > 0 else experts
        if not _of_experts(called) and chosen <= used <= (1.0 - UNUSED) * experts:
            found.append((called, used))
    if not found:
        return None
    every = [each for each, _ in found]
    measured, facts = _fused(trace, every)
    facts |= {"experts_share": measured / trace.window, "experts": _rows(every[0])[0], "most_used": found[0][1]}
    return Found(measured, 0.0, facts, _lines(every), [])


def _fused(trace: KernelTrace, found: list[Called]) -> tuple[float, dict[str, float | str]]:
    lasts = sum(each.lasts for each in found) / len(trace.counted)
    return min(lasts, trace.mean(lambda gpu: gpu.computing)), {"operator": found[0].name, "shapes": found[0].shapes}


def _lines(found: list[Called]) -> list[tuple[str, float]]:
    return [(f"{each.name} {each.shapes}", float(each.lasts)) for each in found]


def _kernels(found: list[Called]) -> list[Event]:
    return [kernel for each in found for kernel in each.kernels]


def _turned(trace: KernelTrace) -> Found | None:
    """Return kernels that turn images round: all of their time is saved."""
    mine = [each for each in trace.kernels if each.computes and TURNED in each.name.lower()]
    if not mine:
        return None
    by_name: dict[str, int] = {}
    for kernel in mine:
        by_name[kernel.name] = by_name.get(kernel.name, 0) + kernel.lasts
    lasts = sum(by_name.values()) / len(trace.counted)
    caller = operator_of(trace, mine[0])
    name = mine[0].name if caller is None else caller.name
    facts: dict[str, float | str] = {"layout_share": lasts / trace.window, "operator": name}
    lines = sorted(((name, float(total)) for name, total in by_name.items()), key=lambda each: -each[1])
    return Found(lasts, lasts, facts, lines, mine)


def _math(trace: KernelTrace) -> Found | None:
    inside = []
    for kernel in trace.kernels:
        call = trace.launch_of(kernel) if kernel.computes else None
        if call is not None and any(
            each.name == MATH and each.start <= call.start < each.end for each in trace.operators_at(call.start)
        ):
            inside.append(kernel)
    if not inside:
        return None
    lasts = sum(each.lasts for each in inside)
    share = lasts / len(trace.counted)
    facts: dict[str, float | str] = {"math_share": share / trace.window, "operator": MATH}
    return Found(share, share / 2.0, facts, [(MATH, float(lasts))], inside)


def _chains(trace: KernelTrace, every: list[Called]) -> Found | None:
    links: dict[int, Called] = {}
    for called in every:
        _, memory = _needs(trace, called)
        held = called.work[1] > 2.0 * RATES[trace.recording.cards[0].name][2]
        if called.name != PRODUCT and held and called.calls == len(called.kernels) and memory <= called.lasts:
            links |= {id(kernel): called for kernel in called.kernels}
    chains: dict[str, list[list[tuple[Event, Called]]]] = {}
    for gpu in trace.gpus:
        for chain in _runs([kernel for kernel in gpu.work if kernel.computes], links):
            if len(chain) >= SHORTEST_CHAIN:
                names = [called.name for _, called in chain]
                named = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
                chains.setdefault(named, []).append(chain)
    if not chains:
        return None
    order = sorted(chains, key=lambda each: -sum(map(_saves, chains[each])))
    saved = sum(_saves(chain) for alike in chains.values() for chain in alike) / len(trace.counted)
    saved = min(saved, trace.mean(lambda gpu: gpu.computing))
    kernels = {name: [kernel for chain in chains[name] for kernel, _ in chain] for name in order}
    facts: dict[str, float | str] = {
        "saved_share": saved / trace.window, "operator": order[0], "shapes": chains[order[0]][0][0][1].shapes,
    }  # fmt: skip
    lines = [(name, float(sum(each.lasts for each in kernels[name]))) for name in order]
    return Found(saved, saved, facts, lines, [each for name in order for each in kernels[name]])


def _runs(work: list[Event], links: dict[int, Called]) -> list[list[tuple[Event, Called]]]:
    """Return operators on single elements that follow each other over tensors of one size, no two alike in a row."""
    runs: list[list[tuple[Event, Called]]] = []
    before: Called | None = None
    for kernel in work:
        called = links.get(id(kernel))
        if called is not None:
            follows = before is not None and before.name != called.name and before.work[0] == called.work[0]
            if follows:
                runs[-1].append((kernel, called))
            else:
                runs.append([(kernel, called)])
        before = called
    return runs


def _saves(chain: list[tuple[Event, Called]]) -> float:
    """Return what one kernel would save: each link but the first reads one tensor less, and writes one less."""
    moved = sum(called.work[1] / (called.work[0] * called.size) for _, called in chain)
    lasts: int = sum(kernel.lasts for kernel, _ in chain)
    return lasts * min(2.0 * (len(chain) - 1) / moved, 1.0)


def fact(name: str) -> Callable[[KernelTrace], float | str]:
    """Return what tells a fact of the rule; one that it should not have is no number."""

    def of(trace: KernelTrace) -> float | str:
        found = found_of(trace)
        return float("nan") if found is None else found.facts.get(name, float("nan"))

    return of


NAMES = (
    "saved_share", "reached_share", "operator", "shapes", "odd_size", "faster_shape", "narrowest", "tiles",
    "multiprocessors", "tile_side", "math_share", "slow_calls", "calls", "layout_share", "groups", "most_rows",
    "mean_rows", "stride", "experts", "rows", "starved_share", "compute_share", "experts_share", "most_used",
)  # fmt: skip
