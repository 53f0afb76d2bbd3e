"""The facts of a hang's dumps: which rank holds up the job, in what the others wait, and what its node's GPUs have."""

from collections.abc import Iterator, Mapping

from trainguard.core.finding import Fact
from trainguard.rules.rule_inputs import KnownHang, KnownRank

NAMED_RANKS, NAMED_FAULTS = 4, 2

# Faults of a GPU that may hold up a collective, by their kind; a throttled GPU goes on.
GPU_FAULTS = frozenset({"lost", "vanished", "unanswered", "xid", "xid_after_reset", "ecc", "rows", "link"})

# By node the fault of a GPU there: its kind and facts.
GpuFaults = Mapping[str, tuple[str, tuple[Fact, ...]]]


def facts_of(hang: KnownHang, faults: GpuFaults) -> tuple[Fact, ...]:
    """Return the facts, the most important first; those of the culprits of the first one's kind."""
    alike = [each for each in hang.named if each.kind == hang.named[0].kind]
    return (
        *(_culprits(hang, alike) if alike else ()),
        *_counted("ranks_waiting", hang.waiting),
        *_operation("awaited", hang),
        *(_fault(node, *faults[node]) for node in _at_fault(alike, faults)),
        *(_xid(node, *faults[node]) for node in _at_fault(alike, faults) if faults[node][0].startswith("xid")),
        *(_own(alike[0]) if alike else ()),
        *_counted("ranks_without_dump", hang.without_dump),
        *_counted("dumps_left_out", hang.left_out),
    )


def cause_of(hang: KnownHang) -> str:
    """Return what names the cause: the same for the same ranks, whatever else becomes known of them."""
    return ",".join(str(rank) for rank in sorted(each.rank for each in hang.named))


def _culprits(hang: KnownHang, alike: list[KnownRank]) -> Iterator[Fact]:
    first = alike[0]
    yield Fact(name="culprit_kind", value=first.kind)
    # Of more than are kept other kinds are not counted apart.
    count = len(alike) if len(hang.named) == hang.culprits else hang.culprits
    yield Fact(name="culprit_ranks", value=count, unit="ranks")
    for each in alike[:NAMED_RANKS]:
        yield Fact(name="culprit_rank", value=each.rank, node=each.node or None)
    if first.line:
        yield Fact(name="culprit_line", value=first.line)
        yield Fact(name="culprit_doing", value=first.doing)


def _own(first: KnownRank) -> Iterator[Fact]:
    yield from _operation("culprit", first)


def _operation(whose: str, held: KnownHang | KnownRank) -> Iterator[Fact]:
    """Yield an operation, its number, and its group, as far as they are known."""
    if held.operation:
        yield Fact(name=f"{whose}_operation", value=held.operation)
        if held.sequence is not None:
            yield Fact(name=f"{whose}_sequence", value=held.sequence)
        if held.group:
            yield Fact(name=f"{whose}_group", value=held.group)


def _counted(name: str, count: int) -> tuple[Fact, ...]:
    return (Fact(name=name, value=count, unit="ranks"),) if count else ()


def _at_fault(alike: list[KnownRank], faults: GpuFaults) -> list[str]:
    """Return the culprits' nodes with a fault of a GPU; of all nodes, where no rank is named."""
    nodes = dict.fromkeys(each.node for each in alike) if alike else sorted(faults)
    return [node for node in nodes if node in faults and faults[node][0] in GPU_FAULTS][:NAMED_FAULTS]


def _fault(node: str, kind: str, facts: tuple[Fact, ...]) -> Fact:
    first = facts[0]
    return Fact(name="gpu_fault", value=kind, node=node, device=first.device, start=first.start, end=first.end)


def _xid(node: str, kind: str, facts: tuple[Fact, ...]) -> Fact:
    del kind
    first = facts[0]
    return Fact(name="gpu_xid", value=first.value, node=node, device=first.device, start=first.start, end=first.end)
