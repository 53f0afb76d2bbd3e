"""The words of GPUHealth."""

from collections.abc import Mapping

from trainguard.core.records import Status
from trainguard.rules.gpu_health.faults import XID_FAULTS, XID_OF_PROGRAMS
from trainguard.rules.rule_result import FactSheet, JudgedKind, Words
from trainguard.rules.windows import or_undecided


class HealthKind(JudgedKind):
    """Findings on a node's GPUs, the most severe first; the last are no faults."""

    LOST = "lost", Status.FIRED
    VANISHED = "vanished", Status.FIRED
    UNANSWERED = "unanswered", Status.FIRED
    XID = "xid", Status.FIRED
    XID_AFTER_RESET = "xid_after_reset", Status.FIRED
    ECC = "ecc", Status.FIRED
    ROWS = "rows", Status.FIRED
    HEAT = "heat", Status.FIRED
    SLOWDOWN = "slowdown", Status.FIRED
    POWER_LIMIT = "power_limit", Status.FIRED
    LINK = "link", Status.FIRED
    HEALTHY = "healthy"
    NOT_COLLECTED = "not_collected", Status.NOT_APPLICABLE


NOT_COLLECTED = (
    "{node} has no series of GPU health, such as XID and ECC errors, reasons for throttling and PCIe width: "
    "trainguard-collector writes them, dcgm-exporter some of them, the managed profiler none."
)


@or_undecided
def text(sheet: FactSheet) -> Words:
    if sheet.kind == HealthKind.NOT_COLLECTED:
        return Words(sheet.say(NOT_COLLECTED))
    if sheet.kind == HealthKind.HEALTHY:
        return Words(_healthy(sheet))
    fault = _FAULTS[HealthKind(sheet.kind)]
    shown = [str(fact.value) for fact in sheet.all("other_gpu")]
    more = sheet.count("other_gpus") - len(shown) if sheet.get("other_gpus") else 0
    gpus = ", ".join(shown) + (f" and {more} more" if more else "")
    others = sheet.say_if("other_gpus", "; {other_gpus:other GPU} of the node, {gpus}, too", gpus=gpus)
    words = Words(f"{fault.reason}{{others}}.", fault.advice, "{device} on {node} was not healthy")
    return sheet.fill(words, others=others, **_named(sheet))


def _named(sheet: FactSheet) -> dict[str, str]:
    if sheet.kind in {HealthKind.XID, HealthKind.XID_AFTER_RESET}:
        meaning = XID_FAULTS[sheet.count("xid")]
        return {"meaning": meaning, "again": "" if sheet.count("times") == 1 else sheet.say(", {times:time}")}
    if sheet.kind == HealthKind.LINK:
        before = sheet.say_if("lanes_before", "it had {lanes_before} before")
        return {"expected": before or sheet.say("those of the other GPUs have {lanes_of_others}")}
    return {"below": sheet.say_if("clock_of_peers", ", which {was/is} below that of its peers")}


def _healthy(sheet: FactSheet) -> str:
    devices = sheet.facts[0]
    what = f"{devices:Neuron device}" if devices.name == "neuron_devices" else f"{devices:GPU}"
    by = ", ".join(str(fact.value) for fact in sheet.all("watched_by"))
    reason = sheet.say("{what} of {node} reported no fault in {minutes:minute} by {by}.", what=what, by=by)
    xid, before = sheet.get("xid"), sheet.get("xid_before")
    if before is not None:
        return sheet.say(f"{{reason}} {_BEFORE}", reason=reason)
    if xid is None:
        return reason
    usual = XID_OF_PROGRAMS.get(int(xid.value))
    meaning = "whose cause the vendor's catalogue names" if usual is None else f"usually {usual}"
    said = "{reason} {xid.device} on {node} reported XID {xid.value}, {meaning}: no fault of the GPU by itself."
    return sheet.say(said, reason=reason, meaning=meaning)


_BEFORE = "XID {xid_before.value} of {xid_before.device} was set before its first sample: it is none of the job."
_XID = "{device} on {node} reported XID {xid.value}, {meaning}{again}"
_THROTTLED = (
    "{{device}} on {{node}} {{was/is}} throttled by {}: its clock under load {{was/is}} {{clock}} MHz, {{clock_lost}} "
    "lower than without{{below}}"
)
_FAULTS: Mapping[HealthKind, Words] = {
    HealthKind.LOST: Words(
        "{device} on {node} {was/is} lost: its driver {did/does} not reach it any more",
        "Replace {node}: a GPU that is lost comes back after a restart of the machine at best.",
    ),
    HealthKind.VANISHED: Words(
        "{device} on {node} {had/has} vanished: other GPUs {had/have} samples in {silent_minutes:minute}, and it "
        "{had/has} none",
        "Check the driver's log on {node}, and replace the node if {device} is not listed any more.",
    ),
    HealthKind.UNANSWERED: Words(
        "the driver {did not answer/has not answered} for {device} on {node} in {unanswered_minutes:minute}",
        "Check the driver's log on {node} for faults and stuck processes of {device}, and replace the node if it does "
        "not answer after a restart.",
    ),
    HealthKind.XID: Words(
        _XID,
        "Replace {node}: XID {xid.value} is of the hardware of {device}, and not of the training script.",
    ),
    HealthKind.XID_AFTER_RESET: Words(
        _XID,
        "Reset {device} on {node} before the job goes on from its last checkpoint; replace the node if XID "
        "{xid.value} comes back.",
    ),
    HealthKind.ECC: Words(
        "{device} on {node} had {ecc_errors:uncorrectable ECC error} during the job",
        "Go on from a checkpoint before the errors, on another node: what {device} computed since then may be wrong. "
        "Replace {node} if the errors come back after a reset of the GPU.",
    ),
    HealthKind.ROWS: Words(
        "{device} on {node} could not remap a faulty memory row",
        "Replace {node}: {device} has no spare memory rows where it needs them.",
    ),
    HealthKind.HEAT: Words(
        _THROTTLED.format("heat"),
        "Replace {node}, or have its cooling repaired: {device} is too hot to keep its clock under load.",
    ),
    HealthKind.SLOWDOWN: Words(
        _THROTTLED.format("a slowdown that its hardware demands"),
        "Replace {node}, or have its power supply checked: the hardware of {device} slows it down under load.",
    ),
    HealthKind.POWER_LIMIT: Words(
        _THROTTLED.format("its power limit"),
        "Compare the power limit of {device} on {node} with that of the other GPUs, and set it as theirs is.",
    ),
    HealthKind.LINK: Words(
        "the PCIe link of {device} on {node} {had/has} {lanes} lanes under load, where {expected}",
        "Replace {node} if its data loading or its communication is slow: a link that lost lanes does not get them "
        "back while the machine runs.",
    ),
}
