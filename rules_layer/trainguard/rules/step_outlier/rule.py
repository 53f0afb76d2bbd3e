"""StepOutlier: more long training steps than chance explains, or more time lost in them than is good.

Source: AWS documentation of StepOutlier. Their time counts too, as by Cantelli's inequality at most 3.8 % of steps lie
beyond five deviations; a host that only hands out work loses nothing by long steps.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from trainguard.core.finding import Fact, Patience
from trainguard.core.records import Status
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.ledger.bucket import Bucket
from trainguard.rules.change import ChangeCode
from trainguard.rules.protocol import JoinedRule
from trainguard.rules.rule_inputs import JobView, NodeFacts
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.spec import FRAMEWORK, LOW_GPUS, SLOW_STEPS, STEPS, ParameterHelp, RuleSpec
from trainguard.rules.step_outlier.evaluation import (
    EvaluatedSeries,
    StepDetails,
    StepOutlierParameters,
    details_of,
    evaluated,
)
from trainguard.rules.step_outlier.series import MAX_REFUSED, WARM_UP_STEPS, StepSeries, StepsState
from trainguard.rules.step_outlier.text import StepOutlierKind, text

STEP_MODE_PREFIX = "Step:ModeKeys"
# A series is judged with more steps than this, after the first WARM_UP_STEPS.
MIN_STEPS = 100
# An event is named when its share of slow steps exceeds that of ordinary ones by so many points.
GROWN_BY_PERCENT = 10.0

MIN_DISTANCES = 4
REGULAR_SHARE = 0.8


OUTLIERS = Measure("beyond the limit", "steps")
LOST_TIME = Measure("time lost in slow steps", "%")
_CLAIMED = (Bucket.CHECKPOINT, Bucket.EVALUATION, Bucket.DATA, Bucket.IDLE, Bucket.UNEXPLAINED)


class StepOutlier(JoinedRule[StepOutlierParameters, StepsState]):
    spec = RuleSpec(
        name="StepOutlier",
        title="Step durations",
        looks_at="each process's training steps",
        fires_when="long steps are more than chance explains, or take too much time, and the GPUs wait for them",
        condition=(
            "a process has more steps beyond its mean and {stddev} standard deviations than {n_outliers} and chance "
            "allow, or loses more than {slow_share} % of its time in slow steps, and its GPUs are idle in that time"
        ),
        measures=(OUTLIERS, LOST_TIME),
        counts=STEPS,
        parameters={
            "stddev": ParameterHelp("standard deviations", "a step further beyond the mean is an outlier"),
            "mode": ParameterHelp(
                "`TRAIN`, `EVAL`, …, or the event's full name; None judges all `Step:ModeKeys`",
                "which steps are judged",
            ),
            "n_outliers": ParameterHelp("steps", "so many outliers are plausible in any job"),
            "slow_share": ParameterHelp(
                "% of the time in steps", "a larger share of the time lost in slow steps fires"
            ),
        },
        shipped_defaults={"stddev": 3.0},
        managed_parameters=("threshold", "mode", "n_outliers", "stddev"),
        managed_aliases={"threshold": "stddev"},
        inputs=FRAMEWORK,
        measures_loss=True,
        symptom=SLOW_STEPS,
        explains=(LOW_GPUS,),
        changes={"": ChangeCode.FIX_SLOW_STEPS},
        text=text,
        claims={StepOutlierKind.TOO_MANY: _CLAIMED, StepOutlierKind.TOO_SLOW: _CLAIMED},
        too_short=(
            f"It needs more than {MIN_STEPS + WARM_UP_STEPS} steps of a process: nothing to do for a job that has "
            "fewer."
        ),
        details=StepDetails,
        section="trainguard.rules.step_outlier.section:blocks",
    )

    # 90 min: the counts are of the whole job, and their share changes slowly about the limit.
    clear_s = 5_400.0

    def observe(self, state: StepsState, events: FrameworkEvents, parameters: StepOutlierParameters) -> None:
        for batch in events.steps:
            if _is_wanted(batch.mode, parameters.mode) and batch.numbers:
                state.fold(batch, parameters.stddev, events.table)

    def judge(self, view: JobView, parameters: StepOutlierParameters) -> RuleResult:
        states = {node: state for node, state in view.collected(self.name, StepsState).items() if state.series}
        if not states:
            return _without_steps(view, parameters)
        by_node = {node: _ranked(view.nodes[node], state, parameters) for node, state in states.items()}
        ranked = sorted((each for of_node in by_node.values() for each in of_node), key=_order(parameters))
        if not ranked:
            return _warming_up(view, states)
        worst = ranked[0]
        kind = _outcome(worst, view)
        fired, by_time = kind.status is Status.FIRED, worst.too_slow and not worst.too_many
        slow_nodes = [node for node, of_node in by_node.items() if any(each.fired for each in of_node)]
        return RuleResult.of_kind(
            text,
            kind,
            _facts(worst, states[worst.node], parameters),
            measured=worst.slow_share if by_time else float(worst.outliers),
            threshold=parameters.slow_share if by_time else float(worst.plausible),
            measure=LOST_TIME if by_time else OUTLIERS,
            worst=f"{worst.node}/{worst.label}",
            data_points=sum(verdict.series.seen for verdict in ranked),
            progress=_progress_of(worst.series),
            affected_share=worst.affected_share if fired else None,
            wasted_share=_wasted_share(by_node, view) if fired else None,
            onset=_onset(by_node) if fired else None,
            gpus=view.used_gpus(slow_nodes) if fired else (),
            details={node: details_of(by_node[node], state) for node, state in states.items()} if view.detailed else {},
        )


def _is_wanted(mode: str, wanted: str | None) -> bool:
    """Whether a step event's name is ``wanted``, given in full or as TRAIN; None stands for all of Step:ModeKeys."""
    if wanted in {None, "None"}:
        return mode.startswith(STEP_MODE_PREFIX)
    return wanted == mode or f"{STEP_MODE_PREFIX}.{wanted}".lower() == mode.lower()


def _ranked(facts: NodeFacts, state: StepsState, parameters: StepOutlierParameters) -> list[EvaluatedSeries]:
    steps_us: Counter[str] = Counter()
    for series in state.series:
        steps_us[series.process] += series.total_us
    verdicts = [
        evaluated(facts, series, max(steps_us[series.process], 1), parameters)
        for series in state.series
        if series.seen > MIN_STEPS
    ]
    return sorted(verdicts, key=_order(parameters))


def _order(parameters: StepOutlierParameters) -> Callable[[EvaluatedSeries], tuple[bool, bool, float]]:
    def place(verdict: EvaluatedSeries) -> tuple[bool, bool, float]:
        by_count = verdict.outliers / max(verdict.plausible, 1)
        by_time = verdict.slow_share / max(parameters.slow_share, 0.1)
        return not verdict.fired, not verdict.is_slow, -max(by_count, by_time)

    return place


def _outcome(worst: EvaluatedSeries, view: JobView) -> StepOutlierKind:
    if not worst.is_slow:
        return StepOutlierKind.FINE
    system = view.nodes[worst.node].system
    if not view.closed and system is not None and system.gpu_names and worst.gpu is None:
        return StepOutlierKind.WAITS_FOR_SAMPLES
    if not worst.is_lost:
        return StepOutlierKind.GPUS_BUSY
    return StepOutlierKind.TOO_MANY if worst.too_many else StepOutlierKind.TOO_SLOW


def _facts(worst: EvaluatedSeries, state: StepsState, parameters: StepOutlierParameters) -> tuple[Fact, ...]:
    node, series, gpu = worst.node, worst.series, worst.gpu
    start, end = (series.first_us or 0) / 1e6, series.last_us / 1e6

    def fact(name: str, value: float | str, unit: str = "", threshold: float | None = None) -> Fact:
        return Fact(name=name, value=value, unit=unit, node=node, start=start, end=end, threshold=threshold)

    facts = [
        fact("process", worst.label),
        fact("steps", series.steps, "steps"),
        fact("slow_steps", worst.outliers, "steps", float(worst.plausible)),
        fact("outlier_above", worst.above_us / 1e6, "s"),
        fact("median_step", worst.median_us / 1e6, "s"),
        fact("slow_time_share", worst.slow_share / 100.0, "share", parameters.slow_share / 100.0),
    ]
    if gpu is not None:
        facts.append(gpu)
    grown, apart = state.overlap.most_grown(), _distance(series)
    if worst.fired and grown is not None and grown[1] >= grown[2] + GROWN_BY_PERCENT:
        facts.append(fact("grown_event", grown[0]))
        facts.append(fact("event_in_slow_steps", grown[1] / 100.0, "share"))
        facts.append(fact("event_in_other_steps", grown[2] / 100.0, "share"))
    if worst.fired and apart is not None:
        facts.append(fact("steps_apart", apart, "steps"))
    if state.refused:
        facts.append(fact("series_not_judged", len(state.refused), "", float(MAX_REFUSED)))
    return tuple(facts)


def _distance(series: StepSeries) -> int | None:
    """Return at what distance slow steps come, when at least four of five among the newest keep it."""
    numbers = [int(step.number) for step in series.slow if step.number.isdecimal()]
    distances = [after - before for before, after in pairwise(numbers)]
    if len(distances) < MIN_DISTANCES:
        return None
    usual = max(sorted(set(distances)), key=distances.count)
    return usual if usual > 1 and distances.count(usual) >= REGULAR_SHARE * len(distances) else None


def _wasted_share(by_node: Mapping[str, Sequence[EvaluatedSeries]], view: JobView) -> float:
    """Return the share of all nodes' time that went into slow steps: on each node that of its worst process."""
    lost = [max((each.lost_share for each in of_node if each.fired), default=0.0) for of_node in by_node.values()]
    return sum(lost) / len(view.nodes)


def _onset(by_node: Mapping[str, Sequence[EvaluatedSeries]]) -> float | None:
    """Return the first slow step of those that have come since, epoch seconds, of any process that fires."""
    starts = [each.series.slow_since_us for of_node in by_node.values() for each in of_node if each.fired]
    return min((start / 1e6 for start in starts if start is not None), default=None)


def _progress_of(series: StepSeries) -> Patience:
    return Patience(seen=series.seen + series.dropped, needed=MIN_STEPS + WARM_UP_STEPS, counts="steps")


def _warming_up(view: JobView, states: Mapping[str, StepsState]) -> RuleResult:
    every = [(node, series) for node, state in states.items() for series in state.series]
    node, furthest = max(every, key=lambda each: each[1].seen + each[1].dropped)
    needed = MIN_STEPS + WARM_UP_STEPS
    facts = (
        Fact(name="steps", value=furthest.seen + furthest.dropped, unit="steps", node=node, threshold=float(needed)),
        Fact(name="steps_left_out", value=WARM_UP_STEPS, unit="steps"),
    )
    return RuleResult.of_kind(
        text,
        StepOutlierKind.TOO_SHORT if view.closed else StepOutlierKind.WARMING_UP,
        facts,
        data_points=furthest.seen,
        progress=_progress_of(furthest),
    )


def _without_steps(view: JobView, parameters: StepOutlierParameters) -> RuleResult:
    if not (view.framework_expected or view.framework_seen):
        return RuleResult.of_kind(text, StepOutlierKind.NO_FRAMEWORK_METRICS)
    wanted = () if parameters.mode in {None, "None"} else (Fact(name="mode", value=str(parameters.mode)),)
    return RuleResult.of_kind(text, StepOutlierKind.NO_STEPS, wanted)
