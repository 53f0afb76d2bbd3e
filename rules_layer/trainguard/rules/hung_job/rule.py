"""HungJob: steps have stopped, and GPUs wait in a kernel at little power, or have gone idle."""

import itertools
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Literal

import msgspec

from trainguard.core.finding import Fact, Patience
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.ledger.bucket import Bucket
from trainguard.render.details import Details
from trainguard.rules.change import ChangeCode
from trainguard.rules.hung_job.state import LEAST_WORK_MINUTES, ProcessProgress, ProgressState, WatchState, behind
from trainguard.rules.hung_job.text import GpuFaults, HungKind, cause_of, facts_of, text
from trainguard.rules.protocol import JoinedRule, Percent, Positive, RuleParameters, SystemRule
from trainguard.rules.rule_inputs import JobView, KnownHang, NodeFacts, NodeMinute, NodeView
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.spec import LOW_GPUS, STANDSTILL, SYSTEM, TAKEN_GPU, ParameterHelp, RuleSpec
from trainguard.rules.windows import lacks_utilization, waiting

# A job that went on after a pause is waited for this many times as long.
LEARNED = 2.0
# A node whose samples end so long before the others', and an interval of evaluation, writes none any more.
SILENT_NODE_S = 120.0
# A step may end so much later than its last kernel.
STEP_SLACK_S = 30.0
# Files of steps come so late: where GPUs have worked for longer since the last step that is known, others followed.
WRITTEN_LATE_S = 60.0
# All GPUs that spin while no step ends hang after so long; a job that ended like that alerts nobody for less.
SPINNING_S, SPINNING_AT_END_S = 60.0, 15.0
# A standstill of fewer steps, by their usual pace, may be a slow one.
SPINNING_STEPS = 5
# A dump is of a standstill that begins at most so long after it, and is seen until so long before it.
EARLY_DUMP_S, LATE_DUMP_S = 60.0, 900.0
# Without steps, GPUs that spin before any has worked may wait for a rank that loads: so many times as long.
BEFORE_WORK = 2.0


NAMED = 4
MOST_STEPS = 256


class HungNode(msgspec.Struct, frozen=True):
    """A node: its GPUs by what they do, and their power now and at work, watts."""

    waiting: list[str]
    idle: list[str]
    power: dict[str, float]
    power_at_work: dict[str, float]
    quiet_s: float


class HungDetails(Details, frozen=True, omit_defaults=True):
    """The nodes, the number of each process's newest step, and what dumps of the newest standstill say."""

    nodes: dict[str, HungNode]
    steps: dict[str, str]
    hang: KnownHang | None = None


NO_DETAILS = HungDetails({}, {})


def details_of(watched: dict[str, WatchState], steps: dict[str, str], hang: KnownHang | None = None) -> HungDetails:
    return HungDetails(
        {
            node: HungNode(state.waiting, state.idle, state.drawn, state.known, state.quiet_s)
            for node, state in watched.items()
        },
        dict(itertools.islice(steps.items(), MOST_STEPS)),
        hang,
    )


class HungJobParameters(RuleParameters, frozen=True, kw_only=True):
    with_steps_s: Positive = 150.0
    without_steps_s: Positive = 450.0
    near_idle: Percent = 50.0


SPEC = RuleSpec(
    name="HungJob",
    title="Hung job",
    looks_at="the job's GPUs and steps",
    fires_when="steps have stopped and no GPU works",
    condition=(
        "no GPU works, and no host saves or loads, for {with_steps_s} s while the steps that were seen have stopped, "
        "or for {without_steps_s} s without steps: GPUs are idle, or look busy below {near_idle} % of their power at "
        "work"
    ),
    measures=(Measure("time without work on any GPU", "min"),),
    parameters={
        "with_steps_s": ParameterHelp("seconds", "a standstill as long fires where steps have stopped"),
        "without_steps_s": ParameterHelp("seconds", "a standstill as long fires where no steps are written"),
        "near_idle": ParameterHelp("% of the power at work", "a busy GPU that draws less does not work"),
    },
    inputs=SYSTEM,
    symptom=STANDSTILL,
    explains=(LOW_GPUS, TAKEN_GPU),
    changes={"": ChangeCode.FIND_HANG},
    text=text,
    claims={"": (Bucket.HANG,)},
    details=HungDetails,
    section="trainguard.rules.hung_job.section:blocks",
)


class HungJob(SystemRule[HungJobParameters, WatchState]):
    spec = SPEC

    def observe(self, state: WatchState, minute: NodeMinute, parameters: HungJobParameters) -> None:
        state.fold(minute, parameters.near_idle / 100.0)

    def judge(self, state: WatchState, view: NodeView, parameters: HungJobParameters) -> RuleResult:
        if view.watermark_s is None:
            return waiting(view)
        details = details_of({view.node: state}, {}) if view.detailed and state.minutes else NO_DETAILS
        if not view.gpu_names:
            return lacks_utilization(view, details)
        if not state.minutes:
            return RuleResult.of_kind(text, HungKind.NO_POWER, no_power(view.node), details=details)
        if not state.can_judge:
            return _not_known(state, view.node, details, data_points=state.minutes)
        quiet_since = state.quiet_since
        if quiet_since is None:
            kind, name, at = HungKind.WORKS, "watched_through", state.through
        else:
            kind, name, at = HungKind.NEWEST_SAMPLE, "idle_since", quiet_since
        found: tuple[Fact, ...] = (Fact(name=name, value=at, unit="time", node=view.node),)
        if quiet_since is not None and state.paused_s > 0.0:
            kind, found = HungKind.PAUSES, _pause(state, view.node, busy=state.quiet_s <= 0.0)
        needed = _needed_s(parameters, state.longest_s, has_steps=False)
        return RuleResult.of_kind(
            text,
            kind,
            found,
            **_lasted(state.quiet_s, needed),
            data_points=state.minutes,
            near_threshold=state.quiet_since is not None,
            details=details,
        )


class HungJobOverNodes(JoinedRule[HungJobParameters, ProgressState]):
    spec = SPEC

    def observe(self, state: ProgressState, events: FrameworkEvents, parameters: HungJobParameters) -> None:
        state.fold(events)

    def judge(self, view: JobView, parameters: HungJobParameters) -> RuleResult:
        states = {node: each.watched.get(SPEC.name) for node, each in view.nodes.items() if not _is_partitioned(each)}
        watched = {node: state for node, state in states.items() if isinstance(state, WatchState) and state.minutes}
        collected = view.collected(SPEC.name, ProgressState).values()
        steps = {name: each for state in collected for name, each in sorted(state.processes.items())}
        details = NO_DETAILS
        if view.detailed and (watched or view.hang is not None):
            details = details_of(watched, {name: each.number for name, each in steps.items()}, view.hang)
        if not watched:
            return _not_watched(view, details)
        newest = max(state.through for state in watched.values())
        silent_s = SILENT_NODE_S + view.evaluation_every_s
        silent = [node for node, state in watched.items() if newest - state.through > silent_s]
        present = {node: state for node, state in watched.items() if node not in silent}
        if not all(state.can_judge for state in present.values()):
            return _not_known(next(each for each in present.values() if not each.can_judge), None, details)
        since = max(state.quiet_since or newest for state in present.values())
        through = max(min(state.through for state in present.values()), since)
        spins = all(state.spins for state in present.values())
        last_step_end = _last_step_end(steps, (since + STEP_SLACK_S, through) if spins and view.closed else None)
        stopped = bool(steps) and last_step_end <= since + STEP_SLACK_S
        longest_s = max(state.longest_s for state in watched.values())
        needed = _needed_s(parameters, longest_s, has_steps=stopped)
        if spins:
            needed = _needed_of_spinning(view, present, steps, needed, stopped=stopped)
        is_quiet = all(state.quiet_since is not None for state in present.values())
        lasted = through - since if is_quiet else 0.0
        if not is_quiet or lasted < needed or (steps and not stopped):
            calm: tuple[Fact, ...] = (Fact(name="nodes", value=len(present)),)
            kind = HungKind.WORKS
            paused = min(present.values(), key=lambda state: state.paused_s)
            if paused.paused_s > 0.0:
                busy = any(state.quiet_s < state.paused_s for state in present.values())
                kind, calm = HungKind.PAUSES, _pause(paused, None, busy=busy)
            if lasted > 0.0:
                kind, calm = HungKind.STANDS_STILL, (standing_fact(since, through, needed),)
            return RuleResult.of_kind(
                text,
                kind,
                calm,
                **_lasted(lasted, needed),
                near_threshold=is_quiet,
                details=details,
            )
        late = [] if any(each.waiting for each in view.nodes.values()) else behind(steps)
        kind, found = facts_of_standstill(
            present,
            standing_fact(since, through, needed),
            silent=silent,
            last_step_end=last_step_end if stopped else None,
            behind=late,
        )
        waiting, idle = gpus_of(present, "waiting"), gpus_of(present, "idle")
        onset = last_step_end if stopped and last_step_end >= since - WRITTEN_LATE_S else since
        hang = dumps_between(view.hang, onset, through)
        if hang is not None:
            found = with_ranks(found, hang, view.gpu_faults)
        # The others seem to wait for the idle ones, unless these are more.
        guessed = [*late, *silent, *(idle if waiting and len(idle) <= len(waiting) else ())]
        where = [*((each.node for each in hang.named if each.node) if hang is not None else ()), *guessed]
        began = view.started_at if view.started_at is not None else since
        wasted = lasted / max(newest - began, lasted)
        return RuleResult.of_kind(
            text,
            kind,
            found,
            **_lasted(lasted, needed),
            worst=where[0] if where else None,
            affected_share=wasted,
            wasted_share=wasted,
            onset=onset,
            cause="" if hang is None else cause_of(hang),
            gpus=(*waiting, *idle),
            time_left_s=0.0,
            details=details,
        )


def facts_of_standstill(
    present: Mapping[str, WatchState],
    standing: Fact,
    *,
    silent: Sequence[str],
    last_step_end: float | None,
    behind: Sequence[str],
) -> tuple[HungKind, tuple[Fact, ...]]:
    """Return the facts of nodes without a GPU at work: at most 12.

    ``silent`` are nodes, ``behind`` processes ``<node>-<rank>``. ``last_step_end`` (epoch seconds) is None where no
    steps have stopped. Power is a mean, watts; where that at work is not known of all GPUs, the limit counts.
    """
    waiting, idle = (gpus_of(present, look) for look in ("waiting", "idle"))
    kind = HungKind.STOPPED
    if waiting:
        kind = HungKind.WAITS_FOR_IDLE if idle else HungKind.SPINS
    shown = [(state, gpu) for state in present.values() for gpu in (state.waiting if waiting else state.idle)]
    at_work = [state.known[gpu] for state, gpu in shown if gpu in state.known]
    limits = [state.limits[gpu] for state, gpu in shown if gpu in state.limits]
    watts = Fact(name="power_limit", value=fmean(limits) if limits else 0, unit="W")
    if any(at_work) and len(at_work) == len(shown):
        watts = Fact(name="power_at_work", value=fmean(at_work), unit="W", series="PowerWatts")
    places = {"idle_gpu": idle if waiting else [], "rank_behind": behind, "silent_node": silent}
    named = {name: each for name, each in places.items() if each}
    each = NAMED // max(len(named), 1)
    drawn = fmean(state.drawn[gpu] for state, gpu in shown)
    return kind, (
        standing,
        Fact(name="gpus_waiting", value=len(waiting), unit="GPUs"),
        Fact(name="gpus_idle", value=len(idle), unit="GPUs"),
        Fact(name="power", value=drawn, unit="W", series="PowerWatts", end=standing.end),
        watts,
        *_one("last_step_end", last_step_end, unit="time"),
        *_one("ranks_behind", len(behind) or None),
        *_one("silent_nodes", len(silent) or None),
        *(Fact(name=name, value=place) for name, known in named.items() for place in known[:each]),
    )


def dumps_between(hang: KnownHang | None, onset: float, through: float) -> KnownHang | None:
    """Return what dumps say where they are of a standstill from ``onset`` to ``through``, epoch seconds; else None."""
    is_of_it = hang is not None and onset - EARLY_DUMP_S <= hang.at <= through + LATE_DUMP_S
    return hang if is_of_it else None


def with_ranks(found: tuple[Fact, ...], hang: KnownHang, faults: GpuFaults) -> tuple[Fact, ...]:
    """Return the facts of a standstill with those of its dumps, which name what the GPUs only hint at."""
    first, *others = found
    guesses = {"idle_gpu", "rank_behind", "ranks_behind"} if hang.named else set()
    return (first, *facts_of(hang, faults), *(each for each in others if each.name not in guesses))


def gpus_of(present: Mapping[str, WatchState], look: Literal["waiting", "idle"]) -> list[str]:
    """Return the GPUs that wait, or are idle, as ``<node>/<gpu>``."""
    return [f"{node}/{gpu}" for node, state in present.items() for gpu in getattr(state, look)]


def no_power(node: str | None) -> tuple[Fact, ...]:
    return (Fact(name="samples", value=0, series="PowerWatts", node=node),)


def standing_fact(since: float, through: float, needed_s: float) -> Fact:
    """Return for how long no GPU has worked; that counts from ``needed_s`` seconds on."""
    lasted = max(through - since, 0.0)
    return Fact(name="standstill_time", value=lasted, unit="s", start=since, end=through, threshold=needed_s)


def _pause(state: WatchState, node: str | None, *, busy: bool) -> tuple[Fact, ...]:
    since = state.paused_since if busy or node is None else state.quiet_since
    lasted = state.paused_s if busy or node is None else state.quiet_s
    pause = Fact(name="pause_length", value=lasted, unit="s", node=node, start=since, end=state.at)
    return (pause, *([Fact(name="hosts_at_work", value=1, node=node)] if busy else []))


def _one(name: str, value: float | None, unit: str = "") -> tuple[Fact, ...]:
    return () if value is None else (Fact(name=name, value=value, unit=unit),)


def _lasted(lasted: float, needed: float) -> dict[str, Any]:
    """Return the numbers of a judgement: a standstill of so many seconds, of those from which on it counts."""
    progress = Patience(seen=int(lasted), needed=round(needed), counts="seconds")
    return {"measured": lasted / 60.0, "threshold": needed / 60.0, "progress": progress}


def _not_known(state: WatchState, node: str | None, details: HungDetails, *, data_points: int = 0) -> RuleResult:
    seen = max((len(values) for values in state.power.values()), default=0)
    minutes = (Fact(name="minutes_at_work", value=seen, node=node, threshold=float(LEAST_WORK_MINUTES)),)
    progress = Patience(seen=seen, needed=LEAST_WORK_MINUTES, counts="minutes")
    return RuleResult.of_kind(
        text,
        HungKind.NOT_KNOWN,
        minutes,
        data_points=data_points,
        progress=progress,
        needs_longer=True,
        details=details,
    )


def _not_watched(view: JobView, details: HungDetails) -> RuleResult:
    if view.system_through is None:
        none = (Fact(name="samples", value=0),)
        return RuleResult.of_kind(text, HungKind.NO_SAMPLES, none)
    parted = [each.system for each in view.nodes.values() if each.system and _is_partitioned(each)]
    if parted:
        return lacks_utilization(parted[0], details)
    return RuleResult.of_kind(text, HungKind.NO_POWER, no_power(None), details=details)


def _last_step_end(steps: dict[str, ProcessProgress], spun: tuple[float, float] | None) -> float:
    """Return when the last step of all processes ended, epoch seconds; 0 without steps."""
    ends = [each.end_us / 1e6 if spun is None else each.ended_by(*spun) for each in steps.values()]
    return max(ends, default=0.0)


def _needed_of_spinning(
    view: JobView, present: dict[str, WatchState], steps: dict[str, ProcessProgress], needed: float, *, stopped: bool
) -> float:
    """Return for how many seconds GPUs must spin that all do; ``needed`` is that of GPUs that may only wait."""
    if not stopped:
        return needed if all(state.known for state in present.values()) else BEFORE_WORK * needed
    least = SPINNING_AT_END_S if view.closed else SPINNING_S
    pace_s = max(each.pace_us for each in steps.values()) / 1e6
    longest_s = max(state.longest_s for state in present.values())
    return min(needed, max(least, SPINNING_STEPS * pace_s, LEARNED * longest_s))


def _needed_s(parameters: HungJobParameters, longest_s: float, *, has_steps: bool) -> float:
    least = parameters.with_steps_s if has_steps else parameters.without_steps_s
    return max(least, LEARNED * longest_s)


def _is_partitioned(node: NodeFacts) -> bool:
    return node.system is not None and bool(node.system.mig_names) and not node.system.gpu_names
