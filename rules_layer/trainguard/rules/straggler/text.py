"""The words of Straggler."""

from enum import StrEnum

from trainguard.core.finding import clock
from trainguard.core.units import counted, show_duration, show_percent, show_step
from trainguard.rules.rule_result import FactSheet, Words


class StragglerKind(StrEnum):
    """Findings on a job's ranks."""

    SLOW = "slow"
    FINE = "fine"
    WARMING_UP = "warming_up"
    NO_PEERS = "no_peers"
    NO_FRAMEWORK_METRICS = "no_framework_metrics"


def text(sheet: FactSheet) -> Words:
    """Put a judgement of ranks into words."""
    kind = StragglerKind(sheet.kind)
    if kind is StragglerKind.NO_FRAMEWORK_METRICS:
        return Words("This job has written no framework metrics, which the rule needs.")
    if kind is StragglerKind.NO_PEERS:
        return Words("The steps of fewer than two ranks have forward passes: there are no peers to compare.")
    ranks = int(sheet.number("ranks"))
    if kind is StragglerKind.WARMING_UP:
        blocks = sheet["blocks"]
        known = f"{blocks.value} of the {counted(int(blocks.threshold or 0), 'block')}"
        length = show_duration(sheet.number("block_length"))
        return Words(f"{ranks} ranks have {known} of {length} that a verdict takes.")
    rank = sheet["rank"]
    when = clock(rank.start, rank.end)
    own, peers = (show_step(1e6 * sheet.number(name)) for name in ("own_work", "own_work_of_peers"))
    if kind is StragglerKind.FINE:
        return Words(
            f"No rank of {ranks} is slower than its peers: from {when} {rank.value} had most work of its own in a "
            f"step, {own}, of which the peers had {peers}."
        )
    waiting = int(sheet.number("ranks_waiting"))
    why = ", most of it in waits for data" if sheet.get("longer_by_waits") is not None else ""
    longer = sheet["longer_than_peers"]
    reason = (
        f"{_who(sheet)}: from {when} its own work in a step took {own}, {show_percent(float(longer.value))} longer "
        f"than its peers' {peers} (threshold {show_percent(longer.threshold or 0.0)}){why}; "
        f"{'1 rank waited' if waiting == 1 else f'{waiting:,} ranks waited'} for it in each step of "
        f"{show_step(1e6 * sheet.number('mean_step'))}{_others(sheet)}."
    )
    return Words(reason, _advice(sheet), f"{_place(sheet)} was slower than its peers, which waited for it")


def _who(sheet: FactSheet) -> str:
    node, verb = sheet.get("slow_node"), "was" if sheet.past else "is"
    if node is None:
        return f"{sheet.name('rank')} {verb} slow"
    return f"Every rank of {node.value} {verb} slow, most of all {sheet.name('rank')}"


def _others(sheet: FactSheet) -> str:
    named = [str(each.value) for each in sheet.all("slow_rank")]
    if not named:
        return ""
    more = int(sheet.number("ranks_affected")) - len(named)
    verb = "were" if sheet.past else "are"
    return f"; slow {verb} {', '.join(named)}{f', and {more} more' if more else ''}"


def _place(sheet: FactSheet) -> str:
    node, rank = sheet.get("slow_node"), sheet["rank"]
    return str(node.value) if node is not None else f"{rank.value} on {rank.node}"


def _advice(sheet: FactSheet) -> str:
    if sheet.get("longer_by_waits") is not None:
        return (
            f"Give {_place(sheet)} as much data loading as the others: compare the sizes of the ranks' shards, its "
            "loader workers, cores and storage."
        )
    return (
        f"Look at clocks, temperature and power of the GPU of {_place(sheet)}, and at other processes there; compare "
        "the sizes of the ranks' batches. Replace the node if its GPUs stay slow with the same work."
    )
