"""HungJob: steps have stopped, and GPUs wait in a kernel at little power, or have gone idle.

A rule over each node watches power and activity; the rule over the job fires when no GPU of any node works. What saves,
loads or evaluates on the hosts is no hang, and a job that went on after a pause may pause for twice as long.
"""

from statistics import fmean
from typing import ClassVar

from trainguard.records import Status
from trainguard.rules import hung_output as output
from trainguard.rules.hung_output import HungDetails, Standstill
from trainguard.rules.hung_steps import Progress, ProgressState, behind
from trainguard.rules.hung_watch import LEAST_WORK_MINUTES, WatchState
from trainguard.rules.parameter_help import ParameterHelp
from trainguard.rules.protocol import JoinedRule, Percent, Positive, RuleParameters, SystemRule
from trainguard.rules.rule_inputs import JobView, NodeFacts, NodeMinute, NodeView
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.spec import SYSTEM, Loss, RuleSpec
from trainguard.rules.symptoms import LOW_GPUS
from trainguard.rules.windowing import no_utilization
from trainguard.telemetry.framework import FrameworkEvents

CLEAR_AFTER_S = 180.0
LEARNED = 2.0
"""A job that went on after a pause is waited for this many times as long."""

SILENT_NODE_S = 120.0
"""A node whose samples end so long before the others', and an interval of evaluation, writes none any more."""

STEP_SLACK_S = 30.0
"""A step may end so much later than its last kernel."""


class HungJobParameters(RuleParameters, frozen=True, kw_only=True):
    """Seconds of standstill with and without steps; ``near_idle`` in percent of a GPU's power at work."""

    with_steps_s: Positive = 150.0
    without_steps_s: Positive = 450.0
    near_idle: Percent = 50.0


def _loss_from_now(_: RuleResult) -> Loss:
    return Loss(1.0, "until it is stopped")


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
    explains=(LOW_GPUS,),
    clause=output.clause_of,
    loss_from_now=_loss_from_now,
    details=HungDetails,
    section="trainguard.report.html.sections.collected:hung",
)


class HungJob(SystemRule[HungJobParameters, WatchState]):
    """Watches the GPUs of a node for the rule over the job."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = HungJobParameters
    state_type = WatchState

    def clear_after_s(self, parameters: HungJobParameters, interval_s: float) -> float:
        """Three minutes of work."""
        del parameters, interval_s
        return CLEAR_AFTER_S

    def window_points(self, parameters: HungJobParameters, interval_s: float) -> int:
        """Ask for no kept points."""
        del parameters, interval_s
        return 0

    def observe(self, state: WatchState, minute: NodeMinute, parameters: HungJobParameters) -> None:
        """Fold in the minute's power and activity."""
        state.fold(minute, parameters.near_idle / 100.0)

    def judge(self, state: WatchState, view: NodeView, parameters: HungJobParameters) -> RuleResult:
        """Say what is known of the node; only the rule over the job fires."""
        if view.watermark_s is None:
            return RuleResult(Status.WAITING_FOR_DATA, f"no system metrics of {view.node} yet.")
        details = output.details_of({view.node: state}, {}) if view.detailed and state.minutes else output.NO_DETAILS
        if not view.gpu_names:
            return RuleResult(Status.NOT_APPLICABLE, no_utilization(view), details=details)
        if not state.minutes:
            return RuleResult(Status.NOT_APPLICABLE, f"{view.node}: {output.NOT_COLLECTED}", details=details)
        if not state.known:
            reason = f"no GPU of {view.node} has worked for {LEAST_WORK_MINUTES} minutes with a sample of power."
            return RuleResult(Status.WARMING_UP, reason, data_points=state.minutes, details=details)
        return RuleResult(
            Status.OK,
            output.node_sentence(state, view.node),
            measured=state.quiet_s / 60.0,
            threshold=_needed_s(parameters, state.longest_s, has_steps=False) / 60.0,
            data_points=state.minutes,
            near=state.quiet_since is not None,
            details=details,
        )


class HungJobOverNodes(JoinedRule[HungJobParameters, ProgressState]):
    """Fires when no GPU of any node works, and the steps that were seen have stopped."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = HungJobParameters
    state_type = ProgressState

    def clear_after_s(self, parameters: HungJobParameters, interval_s: float) -> float:
        """Three minutes of work."""
        del parameters, interval_s
        return CLEAR_AFTER_S

    def observe(self, state: ProgressState, events: FrameworkEvents, parameters: HungJobParameters) -> None:
        """Take note of each process's newest step."""
        del parameters
        state.fold(events)

    def judge(self, view: JobView, parameters: HungJobParameters) -> RuleResult:
        """Compare how long no GPU has worked with what the job has shown before."""
        watched = _watched(view)
        steps = _progress(view)
        details = output.NO_DETAILS
        if view.detailed and watched:
            details = output.details_of(watched, {name: each.number for name, each in steps.items()})
        if not watched:
            if view.system_through is None:
                return RuleResult(Status.WAITING_FOR_DATA, "no system metrics yet.")
            parted = [facts.system for facts in view.nodes.values() if facts.system and _is_partitioned(facts)]
            reason = no_utilization(parted[0]) if parted else output.NOT_COLLECTED
            return RuleResult(Status.NOT_APPLICABLE, reason, details=details)
        newest = max(state.through for state in watched.values())
        silent_s = SILENT_NODE_S + view.evaluation_every_s
        silent = [node for node, state in watched.items() if newest - state.through > silent_s]
        present = {node: state for node, state in watched.items() if node not in silent}
        if not all(state.known for state in present.values()):
            reason = f"its GPUs have not worked for {LEAST_WORK_MINUTES} minutes with samples of power yet."
            return RuleResult(Status.WARMING_UP, reason, details=details)
        since = max(state.quiet_since or newest for state in present.values())
        seconds = max(min(state.through for state in present.values()) - since, 0.0)
        stopped = bool(steps) and max(each.end_us for each in steps.values()) / 1e6 <= since + STEP_SLACK_S
        longest_s = max(state.longest_s for state in watched.values())
        needed = _needed_s(parameters, longest_s, has_steps=stopped)
        is_quiet = all(state.quiet_since is not None for state in present.values())
        if not is_quiet or seconds < needed or (steps and not stopped):
            return RuleResult(
                Status.OK,
                output.calm_sentence(seconds if is_quiet else 0.0, needed, present),
                measured=seconds / 60.0 if is_quiet else 0.0,
                threshold=needed / 60.0,
                near=is_quiet,
                details=details,
            )
        found = _standstill(view, present, silent, steps, seconds, stopped=stopped)
        where = [*(found.behind or ()), *found.silent, *found.suspects]
        began = view.started_at if view.started_at is not None else since
        wasted = seconds / max(newest - began, seconds)
        return RuleResult(
            Status.FIRED,
            f"{output.sentence_of(found)}.",
            measured=seconds / 60.0,
            threshold=needed / 60.0,
            worst=where[0] if where else None,
            advice=output.advice_on(found),
            affected_share=wasted,
            wasted_share=wasted,
            onset=since,
            gpus=(*found.waiting, *found.idle),
            time_left_s=0.0,
            details=details,
        )


def _needed_s(parameters: HungJobParameters, longest_s: float, *, has_steps: bool) -> float:
    """Return for how many seconds nothing must work."""
    least = parameters.with_steps_s if has_steps else parameters.without_steps_s
    return max(least, LEARNED * longest_s)


def _watched(view: JobView) -> dict[str, WatchState]:
    """Return what was seen of the nodes that have samples of power, and whose GPUs are not all partitioned."""
    states = {node: facts.watched.get(SPEC.name) for node, facts in view.nodes.items() if not _is_partitioned(facts)}
    return {node: state for node, state in states.items() if isinstance(state, WatchState) and state.minutes}


def _is_partitioned(facts: NodeFacts) -> bool:
    return facts.system is not None and bool(facts.system.mig_names) and not facts.system.gpu_names


def _progress(view: JobView) -> dict[str, Progress]:
    states = [facts.collected.get(SPEC.name) for facts in view.nodes.values()]
    return {
        name: progress
        for state in states
        if isinstance(state, ProgressState)
        for name, progress in sorted(state.processes.items())
    }


def _standstill(
    view: JobView,
    present: dict[str, WatchState],
    silent: list[str],
    steps: dict[str, Progress],
    seconds: float,
    *,
    stopped: bool,
) -> Standstill:
    waiting = [f"{node}/{gpu}" for node, state in present.items() for gpu in state.waiting]
    idle = [f"{node}/{gpu}" for node, state in present.items() for gpu in state.idle]
    shown = [(state, gpu) for state in present.values() for gpu in (state.waiting or state.idle)]
    return Standstill(
        seconds=seconds,
        waiting=waiting,
        idle=idle,
        silent=silent,
        power=fmean(state.drawn[gpu] for state, gpu in shown),
        power_at_work=fmean(state.known[gpu] for state, gpu in shown),
        steps_stopped=stopped,
        behind=None if any(facts.waiting for facts in view.nodes.values()) else behind(steps),
    )
