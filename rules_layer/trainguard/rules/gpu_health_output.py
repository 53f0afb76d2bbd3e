"""What is said of GPUs that are not healthy: problems in order of gravity, sentences, advice and details."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

from trainguard.rules.details import SeriesDetails
from trainguard.rules.gpu_faults import SILENT_MINUTES, GpuRecord, HealthState, LoadedMinute, clock_lost
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.units import counted, show_number, show_percent
from trainguard.rules.xid_codes import XID_FAULTS, XID_OF_PROGRAMS

Kind = Literal["vanished", "unanswered", "xid", "ecc", "rows", "throttled", "link"]

GRAVITY: tuple[Kind, ...] = ("vanished", "unanswered", "xid", "ecc", "rows", "throttled", "link")
STALE_S = 900.0
"""Load that is older says nothing of now."""

REPLACE = "Replace {node}: {why}"


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a GPU since ``since``, epoch seconds; ``measured`` is of throttling in percent, else None."""

    gpu: str
    kind: Kind
    since: float
    sentence: str
    advice: str
    measured: float | None = None
    lost_min: float | None = None

    @property
    def fails_now(self) -> bool:
        """Whether the job has lost the GPU already."""
        return self.kind == "vanished"


class _Slowed(NamedTuple):
    """A minute in which a GPU was throttled: its clock, MHz, and how many percent of it were lost."""

    minute: LoadedMinute
    clock: float
    lost: float


class _Narrow(NamedTuple):
    """A minute, epoch seconds, in which a link was narrow: its lanes, the most that it had, and what is expected."""

    at: float
    width: float
    best: float | None
    expected: float


def problems_of(state: HealthState, node: str, watermark_s: float, *, clock_loss: float, minutes: int) -> list[Problem]:
    """Return the node's problems, the gravest first.

    Parameters
    ----------
    state : HealthState
    node : str
    watermark_s : float
        Epoch seconds.
    clock_loss : float
        From how many percent on a lower clock counts.
    minutes : int
        In how many of the newest minutes under load throttling, or a narrow link, must be seen.
    """
    found = [
        problem
        for gpu, record in state.gpus.items()
        for problem in _problems(gpu, record, node, watermark_s, clock_loss, minutes)
    ]
    return sorted(found, key=lambda each: (GRAVITY.index(each.kind), each.since, len(each.gpu), each.gpu))


def _problems(
    gpu: str, record: GpuRecord, node: str, watermark_s: float, clock_loss: float, minutes: int
) -> Iterator[Problem]:
    yield from _lasting(gpu, record, node)
    recent = [each for each in record.loaded if watermark_s - each.at <= STALE_S]
    throttled = [
        _Slowed(each, each.clock, 100.0 * lost)
        for each in recent
        if each.clock is not None
        and (lost := clock_lost(record, each)) is not None
        and round(100.0 * lost, 6) >= clock_loss
    ]
    if len(throttled) >= minutes:
        yield _throttled(gpu, record, node, throttled)
    narrow = [
        _Narrow(each.at, each.width, record.best_width, expected)
        for each in recent
        if each.width is not None and each.width < (expected := _expected_width(record, each))
    ]
    if len(narrow) >= minutes:
        yield _narrow(gpu, node, narrow)


def _lasting(gpu: str, record: GpuRecord, node: str) -> Iterator[Problem]:
    where = f"{gpu} on {node}"
    if record.lost_at is not None:
        yield Problem(
            gpu,
            "vanished",
            record.lost_at,
            f"{where} is lost: its driver does not reach it any more",
            REPLACE.format(node=node, why="a GPU that is lost comes back after a restart of the machine at best."),
        )
    elif record.silent >= SILENT_MINUTES:
        yield Problem(
            gpu,
            "vanished",
            record.seen_at,
            f"{where} has vanished: other GPUs have samples in {counted(record.silent, 'minute')}, and it has none",
            f"Check the driver's log on {node}, and replace the node if {gpu} is not listed any more.",
        )
    elif record.unanswered >= SILENT_MINUTES and record.unanswered_at is not None:
        yield Problem(
            gpu,
            "unanswered",
            record.unanswered_at,
            f"the driver has not answered for {where} in {counted(record.unanswered, 'minute')}",
            f"Check the driver's log on {node} for XIDs and stuck processes of {gpu}, and replace the node if it does "
            "not answer after a restart.",
        )
    for code, seen in record.xids.items():
        if code in XID_FAULTS:
            yield _xid(gpu, node, code, seen.count, seen.first_at)
    if record.new_errors is not None:
        errors = counted(record.new_errors.count, "uncorrectable ECC error")
        yield Problem(
            gpu,
            "ecc",
            record.new_errors.first_at,
            f"{where} had {errors} during the job",
            f"Restart the job from its last checkpoint on another node: what {gpu} computed since then may be wrong. "
            f"Replace {node} if the errors come back after a reset of the GPU.",
        )
    if record.failed_rows_at is not None:
        yield Problem(
            gpu,
            "rows",
            record.failed_rows_at,
            f"{where} could not remap a faulty memory row",
            REPLACE.format(node=node, why=f"{gpu} has no spare memory rows where it needs them."),
        )


def _xid(gpu: str, node: str, code: int, count: int, first_at: float) -> Problem:
    fault = XID_FAULTS[code]
    times = "" if count == 1 else f", {counted(count, 'time')}"
    advice = (
        REPLACE.format(node=node, why=f"XID {code} is of the hardware of {gpu}, and not of the training script.")
        if fault.remedy == "replace"
        else f"Restart the job from its last checkpoint, and reset {gpu} on {node} before; replace the node if XID "
        f"{code} comes back."
    )
    return Problem(gpu, "xid", first_at, f"{gpu} on {node} reported XID {code}, {fault.meaning}{times}", advice)


def _throttled(gpu: str, record: GpuRecord, node: str, throttled: Sequence[_Slowed]) -> Problem:
    newest = throttled[-1].minute
    cause = "its power limit"
    advice = f"Compare the power limit of {gpu} on {node} with that of the other GPUs, and set it as theirs is."
    if newest.heat >= newest.brake and newest.heat > 0.0:
        cause = "heat"
        advice = f"Replace {node}, or have its cooling repaired: {gpu} is too hot to keep its clock under load."
    elif newest.brake > 0.0:
        cause = "a slowdown that its hardware demands"
        advice = f"Replace {node}, or have its power supply checked: the hardware of {gpu} slows it down under load."
    held = "" if newest.peers is None else ", which is below that of its peers"
    return Problem(
        gpu,
        "throttled",
        throttled[0].minute.at,
        f"{gpu} on {node} is throttled by {cause}: its clock under load is {show_number(throttled[-1].clock)} MHz, "
        f"{show_percent(throttled[-1].lost)} lower than without{held}",
        advice,
        measured=throttled[-1].lost,
        lost_min=record.lost,
    )


def _expected_width(record: GpuRecord, loaded: LoadedMinute) -> float:
    """Return how wide a link was, or how wide the others' are: a maximum alone says what a slot may have."""
    return max(width for width in (loaded.width, record.best_width, loaded.peers_width) if width is not None)


def _narrow(gpu: str, node: str, narrow: Sequence[_Narrow]) -> Problem:
    newest = narrow[-1]
    expected = show_number(newest.expected)
    was = f"it had {expected} before" if newest.best == newest.expected else f"those of the other GPUs have {expected}"
    return Problem(
        gpu,
        "link",
        narrow[0].at,
        f"the PCIe link of {gpu} on {node} has {show_number(newest.width)} lanes under load, where {was}",
        f"Replace {node} if its data loading or its communication is slow: a link that lost lanes does not get them "
        f"back while the machine runs.",
    )


class GpuHealth(msgspec.Struct, frozen=True):
    """A GPU; ``problems`` are kinds, ``xids`` counts by code, the clock in MHz and the link in lanes under load."""

    problems: list[str]
    xids: dict[str, int]
    uncorrectable_errors: int
    clock: float | None
    throttled_minutes: int
    loaded_minutes: int
    link_width: float | None


class HealthDetails(SeriesDetails, frozen=True):
    """A node's GPUs."""

    series: dict[str, GpuHealth]


NO_DETAILS = HealthDetails({})


def details_of(state: HealthState, problems: Sequence[Problem]) -> HealthDetails:
    """Return the numbers of every GPU."""
    series = {}
    for gpu, record in state.gpus.items():
        newest = record.loaded[-1] if record.loaded else None
        series[gpu] = GpuHealth(
            problems=[each.kind for each in problems if each.gpu == gpu],
            xids={str(code): seen.count for code, seen in sorted(record.xids.items())},
            uncorrectable_errors=record.new_errors.count if record.new_errors else 0,
            clock=None if newest is None else newest.clock,
            throttled_minutes=sum(clock_lost(record, each) is not None for each in record.loaded),
            loaded_minutes=len(record.loaded),
            link_width=None if newest is None else newest.width,
        )
    return HealthDetails(series)


def remarks_on(state: HealthState, node: str) -> str:
    """Say which XIDs of programs there were: they explain a crash, and are no fault of the GPU."""
    for gpu, record in state.gpus.items():
        for code in sorted(record.xids.keys() - XID_FAULTS.keys()):
            usual = XID_OF_PROGRAMS.get(code)
            meaning = "whose cause the vendor's catalogue names" if usual is None else f"usually {usual}"
            return f" {gpu} on {node} reported XID {code}, {meaning}: no fault of the GPU by itself."
    return ""


def clause_of(result: RuleResult, _: int) -> str:
    """Say what was found on a job."""
    node, slash, gpu = (result.worst or "").partition("/")
    return f"{gpu} on {node} was not healthy" if slash else "a GPU was not healthy"
