"""Kinds of judgements of Straggler, and their words."""

from trainguard.core.records import Status
from trainguard.rules.rule_result import FactSheet, JudgedKind, Parts, Words


class StragglerKind(JudgedKind):
    SLOW = "slow", Status.FIRED
    FINE = "fine"
    UNEVEN = "uneven"
    WARMING_UP = "warming_up", Status.WARMING_UP
    NO_PEERS = "no_peers", Status.NOT_APPLICABLE
    NO_FRAMEWORK_METRICS = "no_framework_metrics", Status.NOT_APPLICABLE


def text(sheet: FactSheet) -> Words:
    return sheet.fill(_WORDS[StragglerKind(sheet.kind)], **_PARTS)


_LATE_IN = {
    "data_wait": "in waits for data",
    "forward": "in the forward pass",
    "backward": "in the backward pass",
    "optimizer": "in the optimizer",
    "other": "outside of passes, optimizer and waits for data",
}


def _others(sheet: FactSheet) -> str:
    named = [str(each.value) for each in sheet.all("slow_rank")]
    if not named:
        return ""
    more = sheet.count("ranks_affected") - len(named)
    return sheet.say("; slow {were/are} {ranks}", ranks=", ".join(named) + (f", and {more} more" if more else ""))


def _why(sheet: FactSheet) -> str:
    late_in = sheet.get("late_in")
    if late_in is not None:
        return f", most of it {_LATE_IN[str(late_in.value)]}"
    return sheet.say_if("longer_by_waits", ", most of it in waits for data")


def _waiting(sheet: FactSheet) -> str:
    waiting = f"{sheet['ranks_waiting']:rank} waited for it in each step of {sheet['mean_step'].as_step}"
    lost = sheet.say_if("lost_of_step", ", {lost_of_step} of it")
    return waiting + lost + sheet.say_if("lost_gpu_time", ", {lost_gpu_time} of GPU time")


def _remedy(sheet: FactSheet) -> str:
    late_in = sheet.get("late_in")
    if late_in is not None:
        return sheet.say(_REMEDIES[str(late_in.value)], **_PARTS)
    return sheet.say(_LOOK_AT_GPU if sheet.get("longer_by_waits") is None else _BALANCE, **_PARTS)


_PARTS: Parts = {
    "who": lambda sheet: (
        sheet.say_if("slow_node", "Every rank of {slow_node} {was/is} slow, most of all {rank}")
        or sheet.say("{rank} {was/is} slow")
    ),
    "where": lambda sheet: sheet.say_if("slow_node", "{slow_node}") or sheet.say("{rank} on {rank.node}"),
    "why": _why,
    "waiting": _waiting,
    "others": _others,
    "remedy": _remedy,
}
_BALANCE = (
    "Give {where} as much data loading as the others: compare the sizes of the ranks' shards, its loader workers, "
    "cores and storage."
)
_LOOK_AT_GPU = (
    "Look at clocks, temperature and power of the GPU of {where}, and at other processes there; compare the sizes of "
    "the ranks' batches. Replace the node if its GPUs stay slow with the same work."
)
_REMEDIES = {
    "data_wait": _BALANCE,
    "forward": _LOOK_AT_GPU,
    "backward": _LOOK_AT_GPU,
    "optimizer": _LOOK_AT_GPU,
    "other": (
        "Look at what the script does on {where} alone, such as logging, metrics or copies, and at other processes "
        "that use its cores."
    ),
}
_WORDS = {
    StragglerKind.SLOW: Words(
        "{who}: from {rank.when} its own work in a step took {own_work.as_step}, {longer_than_peers} longer than its "
        "peers' {own_work_of_peers.as_step} (threshold {longer_than_peers.limit}){why}; {waiting}{others}.",
        "{remedy}",
        "{where} was slower than its peers, which waited for it",
    ),
    StragglerKind.FINE: Words(
        "No rank of {ranks.value} is slower than its peers: from {rank.when} {rank} had most work of its own in a "
        "step, {own_work.as_step}, of which the peers had {own_work_of_peers.as_step}."
    ),
    StragglerKind.UNEVEN: Words(
        "No one rank of {ranks.value} is slower than its peers, but a different one is late from step to step: from "
        "{rank.when} all of them waited for others in {waited_in_turn} of each step of {mean_step.as_step}, as where "
        "the lengths of their batches differ."
    ),
    StragglerKind.WARMING_UP: Words(
        "{ranks.value} ranks have {blocks.value} of the {blocks.limit:block} of {block_length} that a verdict takes."
    ),
    StragglerKind.NO_PEERS: Words(
        "The steps of fewer than two ranks have forward passes: there are no peers to compare."
    ),
    StragglerKind.NO_FRAMEWORK_METRICS: Words("This job has written no framework metrics, which the rule needs."),
}
