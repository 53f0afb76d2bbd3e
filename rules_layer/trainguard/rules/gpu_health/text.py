"""The words of GPUHealth."""

from collections.abc import Callable, Mapping
from enum import StrEnum

from trainguard.core.units import counted, show_number
from trainguard.rules.gpu_health.faults import XID_FAULTS, XID_OF_PROGRAMS
from trainguard.rules.rule_result import FactSheet, Words
from trainguard.rules.windows.warm_up import or_undecided


class HealthKind(StrEnum):
    """Findings on a node's GPUs, the most severe first; the last are no faults."""

    LOST = "lost"
    VANISHED = "vanished"
    UNANSWERED = "unanswered"
    XID = "xid"
    XID_AFTER_RESET = "xid_after_reset"
    ECC = "ecc"
    ROWS = "rows"
    HEAT = "heat"
    SLOWDOWN = "slowdown"
    POWER_LIMIT = "power_limit"
    LINK = "link"
    HEALTHY = "healthy"
    NOT_COLLECTED = "not_collected"


Said = tuple[str, str]

NOT_COLLECTED = (
    "has no series of GPU health, such as XID and ECC errors, reasons for throttling and PCIe width: "
    "trainguard-collector writes them, dcgm-exporter some of them, the managed profiler none."
)


@or_undecided
def text(sheet: FactSheet) -> Words:
    first = sheet.facts[0]
    if sheet.kind == HealthKind.NOT_COLLECTED:
        return Words(f"{first.node} {NOT_COLLECTED}")
    if sheet.kind == HealthKind.HEALTHY:
        return Words(_healthy(sheet))
    gpu, node = first.device or "", first.node or ""
    sentence, advice = _FAULTS[HealthKind(sheet.kind)](sheet, gpu, node)
    others = sheet.get("other_gpus")
    if others is not None:
        shown = [str(fact.value) for fact in sheet.all("other_gpu")]
        more = int(others.value) - len(shown)
        named = ", ".join(shown) + (f" and {more} more" if more else "")
        sentence += f"; {counted(int(others.value), 'other GPU')} of the node, {named}, too"
    return Words(f"{sentence}.", advice, f"{gpu} on {node} was not healthy")


def _healthy(sheet: FactSheet) -> str:
    devices, node = sheet.facts[0], sheet.facts[0].node
    what = counted(int(devices.value), "Neuron device" if devices.name == "neuron_devices" else "GPU")
    over, by = counted(sheet.count("minutes"), "minute"), [str(fact.value) for fact in sheet.all("watched_by")]
    reason = f"{what} of {node} reported no fault in {over} by {', '.join(by)}."
    xid = sheet.get("xid")
    if xid is None:
        return reason
    usual = XID_OF_PROGRAMS.get(int(xid.value))
    meaning = "whose cause the vendor's catalogue names" if usual is None else f"usually {usual}"
    return f"{reason} {xid.device} on {node} reported XID {xid.value}, {meaning}: no fault of the GPU by itself."


def _lost(sheet: FactSheet, gpu: str, node: str) -> Said:
    reaches = "did not reach it any more" if sheet.past else "does not reach it any more"
    why = "a GPU that is lost comes back after a restart of the machine at best."
    return f"{gpu} on {node} {'was' if sheet.past else 'is'} lost: its driver {reaches}", f"Replace {node}: {why}"


def _vanished(sheet: FactSheet, gpu: str, node: str) -> Said:
    minutes = counted(sheet.count("silent_minutes"), "minute")
    gone, have = ("had vanished", "had") if sheet.past else ("has vanished", "have")
    has = "had" if sheet.past else "has"
    return (
        f"{gpu} on {node} {gone}: other GPUs {have} samples in {minutes}, and it {has} none",
        f"Check the driver's log on {node}, and replace the node if {gpu} is not listed any more.",
    )


def _unanswered(sheet: FactSheet, gpu: str, node: str) -> Said:
    minutes, answered = counted(sheet.count("unanswered_minutes"), "minute"), "has not answered"
    advice = (
        f"Check the driver's log on {node} for XIDs and stuck processes of {gpu}, and replace the node if it does not "
        "answer after a restart."
    )
    return f"the driver {'did not answer' if sheet.past else answered} for {gpu} on {node} in {minutes}", advice


def _xid(sheet: FactSheet, gpu: str, node: str) -> Said:
    code, count = sheet.count("xid"), sheet.count("times")
    times = "" if count == 1 else f", {counted(count, 'time')}"
    advice = f"Replace {node}: XID {code} is of the hardware of {gpu}, and not of the training script."
    if sheet.kind == HealthKind.XID_AFTER_RESET:
        advice = (
            f"Restart the job from its last checkpoint, and reset {gpu} on {node} before; replace the node if XID "
            f"{code} comes back."
        )
    return f"{gpu} on {node} reported XID {code}, {XID_FAULTS[code]}{times}", advice


def _ecc(sheet: FactSheet, gpu: str, node: str) -> Said:
    errors = counted(sheet.count("ecc_errors"), "uncorrectable ECC error")
    advice = (
        f"Restart the job from its last checkpoint on another node: what {gpu} computed since then may be wrong. "
        f"Replace {node} if the errors come back after a reset of the GPU."
    )
    return f"{gpu} on {node} had {errors} during the job", advice


def _rows(sheet: FactSheet, gpu: str, node: str) -> Said:
    del sheet
    why = f"{gpu} has no spare memory rows where it needs them."
    return f"{gpu} on {node} could not remap a faulty memory row", f"Replace {node}: {why}"


_CAUSES: Mapping[str, str] = {
    HealthKind.HEAT: "heat",
    HealthKind.SLOWDOWN: "a slowdown that its hardware demands",
    HealthKind.POWER_LIMIT: "its power limit",
}


def _throttled(sheet: FactSheet, gpu: str, node: str) -> Said:
    advice = f"Compare the power limit of {gpu} on {node} with that of the other GPUs, and set it as theirs is."
    if sheet.kind == HealthKind.HEAT:
        advice = f"Replace {node}, or have its cooling repaired: {gpu} is too hot to keep its clock under load."
    elif sheet.kind == HealthKind.SLOWDOWN:
        advice = f"Replace {node}, or have its power supply checked: the hardware of {gpu} slows it down under load."
    held = (
        ""
        if sheet.get("clock_of_peers") is None
        else f", which {'was' if sheet.past else 'is'} below that of its peers"
    )
    verb = "was" if sheet.past else "is"
    clock, lost = show_number(sheet.number("clock")), sheet.percent("clock_lost")
    look = f"its clock under load {verb} {clock} MHz, {lost} lower than without{held}"
    return f"{gpu} on {node} {verb} throttled by {_CAUSES[sheet.kind]}: {look}", advice


def _link(sheet: FactSheet, gpu: str, node: str) -> Said:
    if sheet.get("lanes_before") is not None:
        was = f"it had {show_number(sheet.number('lanes_before'))} before"
    else:
        was = f"those of the other GPUs have {show_number(sheet.number('lanes_of_others'))}"
    has = "had" if sheet.past else "has"
    advice = (
        f"Replace {node} if its data loading or its communication is slow: a link that lost lanes does not get them "
        "back while the machine runs."
    )
    lanes = show_number(sheet.number("lanes"))
    return f"the PCIe link of {gpu} on {node} {has} {lanes} lanes under load, where {was}", advice


_FAULTS: Mapping[HealthKind, Callable[[FactSheet, str, str], Said]] = {
    HealthKind.LOST: _lost,
    HealthKind.VANISHED: _vanished,
    HealthKind.UNANSWERED: _unanswered,
    HealthKind.ECC: _ecc,
    HealthKind.ROWS: _rows,
    HealthKind.LINK: _link,
    **dict.fromkeys((HealthKind.XID, HealthKind.XID_AFTER_RESET), _xid),
    **dict.fromkeys((HealthKind.HEAT, HealthKind.SLOWDOWN, HealthKind.POWER_LIMIT), _throttled),
}
