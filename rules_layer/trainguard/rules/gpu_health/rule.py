"""GPUHealth: GPUs with faults of hardware, that are throttled, or that have vanished.

Sources: NVIDIA, "XID Errors", and NVML's documentation of clock event reasons, ECC counters and remapped rows. A clock
is compared with its peers', as a power limit lowers all of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import msgspec

from trainguard.core.finding import Fact
from trainguard.formats.profile import snapshots as names
from trainguard.render.details import SeriesDetails
from trainguard.rules.change import ChangeCode
from trainguard.rules.gpu_health.faults import (
    KEPT_MINUTES,
    SILENT_MINUTES,
    XID_ENDED_BY_RESET,
    XID_FAULTS,
    GpuRecord,
    HealthState,
    LoadedMinute,
    Seen,
)
from trainguard.rules.gpu_health.text import HealthKind, text
from trainguard.rules.protocol import Percent, PositiveInt, RuleParameters, SystemRule
from trainguard.rules.rule_inputs import NodeMinute, NodeView, share_of_paid
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.spec import STANDSTILL, SYSTEM, ParameterHelp, RuleSpec
from trainguard.rules.windows import lacks_utilization, waiting

NAMED = 4
Kind = Literal["vanished", "unanswered", "xid", "ecc", "rows", "throttled", "link"]
GRAVITY: tuple[Kind, ...] = get_args(Kind)
_THROTTLED = (HealthKind.HEAT, HealthKind.SLOWDOWN, HealthKind.POWER_LIMIT)
# With such a GPU its peers wait without end.
_BROKEN = (HealthKind.LOST, HealthKind.VANISHED, HealthKind.UNANSWERED, HealthKind.XID, HealthKind.ECC)
# Load that is older says nothing of now.
STALE_S = 900.0


@dataclass(frozen=True, slots=True)
class Problem:
    """A GPU's problem since ``since``, epoch seconds; ``measured`` is of throttling in percent, else None."""

    gpu: str
    kind: Kind
    since: float
    look: HealthKind
    facts: tuple[Fact, ...]
    measured: float | None = None
    lost_min: float | None = None


def problems_of(state: HealthState, node: str, watermark_s: float, *, clock_loss: float, minutes: int) -> list[Problem]:
    """Return the node's problems, the most severe first: a clock counts from ``clock_loss`` percent on.

    Throttling, or a narrow link, must be seen in ``minutes`` of the newest minutes under load.
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
    yield from _lasting(gpu, record, node, watermark_s)
    recent = [each for each in record.loaded if watermark_s - each.at <= STALE_S]
    throttled = [each for each in recent if each.lost is not None and round(100.0 * each.lost, 6) >= clock_loss]
    if len(throttled) >= minutes:
        yield _throttled(gpu, record, node, throttled)
    narrow = [
        (each, expected)
        for each in recent
        if each.width is not None and each.width < (expected := max(record.best_width or 0.0, each.peers_width or 0.0))
    ]
    if len(narrow) >= minutes:
        yield _narrow(gpu, record, node, narrow)


def _lasting(gpu: str, record: GpuRecord, node: str, watermark_s: float) -> Iterator[Problem]:
    fact = partial(Fact, node=node, device=gpu)
    if record.lost_at is not None:
        lost = fact(name="lost_since", value=record.lost_at, unit="time")
        yield Problem(gpu, "vanished", record.lost_at, HealthKind.LOST, (lost,))
    elif record.silent >= SILENT_MINUTES:
        at, minutes = record.seen_at, record.silent
        silent = fact(name="silent_minutes", value=minutes, unit="min", start=at, end=watermark_s)
        yield Problem(gpu, "vanished", at, HealthKind.VANISHED, (silent,))
    elif record.unanswered >= SILENT_MINUTES and record.unanswered_at is not None:
        at, minutes = record.unanswered_at, record.unanswered
        unanswered = fact(name="unanswered_minutes", value=minutes, unit="min", start=at, end=watermark_s)
        yield Problem(gpu, "unanswered", at, HealthKind.UNANSWERED, (unanswered,))
    for code, seen in record.xids.items():
        if code in XID_FAULTS:
            of = partial(fact, series=names.XID, **_span(seen))
            facts = of(name="xid", value=code), of(name="times", value=seen.count)
            kind = HealthKind.XID if code != XID_ENDED_BY_RESET else HealthKind.XID_AFTER_RESET
            yield Problem(gpu, "xid", seen.first_at, kind, facts)
    if record.new_errors is not None:
        errors = record.new_errors
        count = fact(name="ecc_errors", value=errors.count, series=names.ECC_UNCORRECTED, **_span(errors))
        yield Problem(gpu, "ecc", errors.first_at, HealthKind.ECC, (count,))
    if record.failed_rows_at is not None:
        rows = fact(name="remapping_failed_since", value=record.failed_rows_at, unit="time")
        yield Problem(gpu, "rows", record.failed_rows_at, HealthKind.ROWS, (rows,))


def _span(seen: Seen) -> dict[str, Any]:
    return {"start": seen.first_at, "end": seen.last_at}


def _throttled(gpu: str, record: GpuRecord, node: str, throttled: Sequence[LoadedMinute]) -> Problem:
    newest, since = throttled[-1], throttled[0].at
    kind, lost = HealthKind.POWER_LIMIT, 100.0 * (newest.lost or 0.0)
    if newest.heat >= newest.brake and newest.heat > 0.0:
        kind = HealthKind.HEAT
    elif newest.brake > 0.0:
        kind = HealthKind.SLOWDOWN
    fact = partial(Fact, node=node, device=gpu, series=names.SM_CLOCK, end=newest.at)
    facts = [
        fact(name="clock", value=newest.clock or 0.0, unit="MHz"),
        fact(name="clock_lost", value=lost, unit="%"),
        fact(name="throttled_minutes", value=len(throttled), unit="min", start=since),
    ]
    if newest.peers is not None:
        facts.append(fact(name="clock_of_peers", value=newest.peers, unit="MHz"))
    return Problem(gpu, "throttled", since, kind, tuple(facts), measured=lost, lost_min=record.lost)


def _narrow(gpu: str, record: GpuRecord, node: str, narrow: Sequence[tuple[LoadedMinute, float]]) -> Problem:
    newest, expected = narrow[-1]
    fact = partial(Fact, node=node, device=gpu, series=names.LINK_WIDTH, end=newest.at)
    had = "lanes_before" if record.best_width == expected else "lanes_of_others"
    facts = fact(name="lanes", value=newest.width or 0.0), fact(name=had, value=expected)
    return Problem(gpu, "link", narrow[0][0].at, HealthKind.LINK, facts)


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
    series: dict[str, GpuHealth]


NO_DETAILS = HealthDetails({})


def details_of(state: HealthState, problems: Sequence[Problem]) -> HealthDetails:
    series = {}
    for gpu, record in state.gpus.items():
        newest = record.loaded[-1] if record.loaded else None
        series[gpu] = GpuHealth(
            problems=[each.kind for each in problems if each.gpu == gpu],
            xids={str(code): seen.count for code, seen in sorted(record.xids.items())},
            uncorrectable_errors=record.new_errors.count if record.new_errors else 0,
            clock=None if newest is None else newest.clock,
            throttled_minutes=sum(each.lost is not None for each in record.loaded),
            loaded_minutes=len(record.loaded),
            link_width=None if newest is None else newest.width,
        )
    return HealthDetails(series)


def healthy_facts(state: HealthState, node: str) -> tuple[Fact, ...]:
    """Return what was watched, and an XID of a program, which explains a crash, else one of before the job."""
    neuron = len(state.neuron_devices)
    facts = [
        Fact(name="neuron_devices" if neuron else "gpus", value=neuron or len(state.gpus), node=node),
        Fact(name="minutes", value=state.minutes, unit="min", node=node),
        *(Fact(name="watched_by", value=kind, node=node) for kind in state.seen),
    ]
    for gpu, record in state.gpus.items():
        for code in sorted(record.xids.keys() - XID_FAULTS.keys()):
            seen = record.xids[code]
            return (*facts, Fact(name="xid", value=code, series=names.XID, node=node, device=gpu, **_span(seen)))
    for gpu, record in state.gpus.items():
        if record.xid_before is not None:
            return (*facts, Fact(name="xid_before", value=record.xid_before, series=names.XID, node=node, device=gpu))
    return tuple(facts)


class GPUHealthParameters(RuleParameters, frozen=True, kw_only=True):
    clock_loss: Percent = 10.0
    loaded_minutes: PositiveInt = 5


class GPUHealth(SystemRule[GPUHealthParameters, HealthState]):
    spec = RuleSpec(
        name="GPUHealth",
        title="GPU health",
        looks_at="each GPU's errors, clocks and links",
        fires_when="a GPU has vanished, has a fault of hardware, or is throttled under load",
        condition=(
            "a GPU has vanished or does not answer, reported an XID of hardware or an uncorrectable ECC error, lost "
            "lanes of its PCIe link, or ran {clock_loss} % or more below its clock, throttled, in {loaded_minutes} of "
            "its newest minutes under load"
        ),
        measures=(Measure("clock lost to throttling", "%"),),
        parameters={
            "clock_loss": ParameterHelp("% of the clock", "a throttled GPU that loses as much counts"),
            "loaded_minutes": ParameterHelp(
                f"minutes, at most {KEPT_MINUTES}", "in so many minutes under load it must be seen"
            ),
        },
        inputs=SYSTEM,
        explains_as=dict.fromkeys(_BROKEN, (STANDSTILL,)),
        changes={"": ChangeCode.REPLACE_NODE, **dict.fromkeys(_THROTTLED, ChangeCode.COOL_NODE)},
        text=text,
        details=HealthDetails,
        section="trainguard.rules.gpu_health.section:blocks",
    )

    # 30 min: a GPU that is throttled again soon after has one fault, and not two.
    clear_s = 1_800.0

    def observe(self, state: HealthState, minute: NodeMinute, parameters: GPUHealthParameters) -> None:
        state.fold(minute)

    def judge(self, state: HealthState, view: NodeView, parameters: GPUHealthParameters) -> RuleResult:
        if view.watermark_s is None:
            return waiting(view)
        if not state.gpus and not view.gpu_names:
            return lacks_utilization(view)
        needed = min(parameters.loaded_minutes, KEPT_MINUTES)
        problems = problems_of(state, view.node, view.watermark_s, clock_loss=parameters.clock_loss, minutes=needed)
        details = details_of(state, problems) if view.detailed else NO_DETAILS
        if not state.gpus or not (problems or state.seen):
            none = (Fact(name="series", value=0, node=view.node),)
            return RuleResult.of_kind(text, HealthKind.NOT_COLLECTED, none, details=NO_DETAILS)
        if not problems:
            return RuleResult.of_kind(
                text,
                HealthKind.HEALTHY,
                healthy_facts(state, view.node),
                data_points=state.minutes,
                details=details,
            )
        worst = problems[0]
        since = view.watermark_s if view.first_sample_at is None else view.first_sample_at
        watched_s = max(view.watermark_s - since, view.interval_s)
        others = sorted({each.gpu for each in problems} - {worst.gpu}, key=lambda gpu: (len(gpu), gpu))
        where: dict[str, Any] = {"node": view.node, "end": view.watermark_s}
        also = [Fact(name="other_gpu", value=gpu, **where) for gpu in others[:NAMED]]
        if others:
            also = [Fact(name="other_gpus", value=len(others), unit="GPUs", **where), *also]
        lost = max((each.lost_min for each in problems if each.lost_min is not None), default=None)
        return RuleResult.of_kind(
            text,
            worst.look,
            (*worst.facts, *also),
            measured=worst.measured,
            threshold=None if worst.measured is None else parameters.clock_loss,
            worst=worst.gpu,
            data_points=state.minutes,
            affected_share=min((view.watermark_s - worst.since) / watched_s, 1.0),
            wasted_share=None if lost is None else share_of_paid(view, 60.0 * lost),
            onset=worst.since,
            gpus=tuple(dict.fromkeys(each.gpu for each in problems)),
            time_left_s=0.0 if worst.kind == "vanished" else None,  # the job has lost the GPU already
            details=details,
        )
