"""StalledTrainingRule: training has saved nothing for too long.

Source: AWS documentation of StalledTrainingRule. While a job runs a clock judges it; of steps that are there already
the gaps between their event times do, so that a gap is found again in a finished run.

A run has a rhythm of its own, an epoch of 40 min for example: a gap is a stall where it is also twice as long as the
longest one before. The first gap is measured, and not judged by the times of steps. A gap of more than six hours after
which steps go on is that of a run that was stopped and resumed.
"""

from typing import ClassVar

from trainguard.finding import Fact
from trainguard.ledger.bucket import Bucket
from trainguard.records import Status
from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.protocol import PositiveInt
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training.loss_facts import step as step_number
from trainguard.rules.training.parameter_help import RANGE_HELP
from trainguard.rules.training.readings import step_fact
from trainguard.rules.training.stalled_training_text import BOUND, NEEDS, StallKind, text
from trainguard.rules.training.step_rule import Check, RunView, StepParameters, StepRule, StepState
from trainguard.tensors.step_view import StepView

RHYTHM = 2.0
INTERRUPTED_S = 21_600.0


class StalledTrainingRuleParameters(StepParameters, frozen=True, kw_only=True):
    """``threshold`` in seconds; stops are asked for as for any rule, or here."""

    rule_name: ClassVar[str] = "StalledTrainingRule"

    threshold: PositiveInt = 1800
    stop_training_on_fire: bool = False
    training_job_name_prefix: str | None = None


class StalledTrainingRuleState(StepState, kw_only=True):
    """The newest step and when it was saved, epoch seconds; None before the first.

    ``longest_s`` is the longest time between two steps that was no stall, seconds; 0 before there was one.
    """

    step: int | None = None
    saved_at: float | None = None
    longest_s: float = 0.0


SPEC = RuleSpec(
    name="training/StalledTrainingRule",
    family="training",
    title="Stalled training",
    looks_at="when steps are saved",
    fires_when="none was saved for too long and training has not ended",
    condition="no step is saved for more than {threshold} s, and for twice as long as ever before between two steps",
    measures=(Measure("time without a saved step", "s"),),
    counts=STEPS,
    parameters={
        "threshold": ParameterHelp("seconds", "a longer time without a saved step is a stall"),
        "stop_training_on_fire": ParameterHelp(
            "", "launch code that sets it tags the job so that this rule may stop it"
        ),
        "training_job_name_prefix": ParameterHelp(
            "", "accepted; the job that stalled is known, and no other is stopped"
        ),
        **RANGE_HELP,
    },
    text=text,
    claims=dict.fromkeys((StallKind.STALLED, StallKind.WAITS), (Bucket.HANG, Bucket.IDLE)),
)


class StalledTrainingRule(StepRule[StalledTrainingRuleParameters, StalledTrainingRuleState]):
    """Fires while no step is saved for longer than the threshold, and than the run's own rhythm explains."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = StalledTrainingRuleParameters
    state_type = StalledTrainingRuleState
    needs = NEEDS
    bound = BOUND

    def watch(self, state: StalledTrainingRuleState, step: StepView, parameters: StalledTrainingRuleParameters) -> None:
        """Note when a step out of range was saved."""
        del parameters
        if step.timed:
            _progress(state, step)

    def check(
        self, state: StalledTrainingRuleState, step: StepView, parameters: StalledTrainingRuleParameters
    ) -> Check | None:
        """Measure the gap before a step. One that is too long stalled after the step before, when patience was over."""
        if not step.timed:
            state.left_out += 1
            return None
        before, saved_at = state.step, state.saved_at
        _progress(state, step)
        if before is None or saved_at is None:
            return Check(step=step.step, at=step.at, fires=False, kind=StallKind.FIRST, facts=(step_fact(step),))
        gap, patience = step.at - saved_at, patience_s(parameters, state.longest_s)
        kind = _kind(gap, patience, parameters, state.longest_s)
        fires = kind is StallKind.STALLED
        if kind in (StallKind.GOES_ON, StallKind.FIRST_GAP):
            state.longest_s = max(state.longest_s, gap)
        return Check(
            step=before if fires else step.step,
            at=saved_at + patience if fires else step.at,
            fires=fires,
            kind=kind,
            facts=_facts(before, gap, patience, saved_at, step),
            value=gap,
            threshold=patience,
            onset=saved_at + patience if fires else None,
        )

    def judge(
        self, state: StalledTrainingRuleState, view: RunView, parameters: StalledTrainingRuleParameters
    ) -> RuleResult:
        """Judge the gaps between steps; a file that gives no times says nothing of them."""
        if state.latest is None and state.left_out:
            untimed = step_number("untimed_steps", state.left_out)
            return RuleResult.of(text, Status.NOT_APPLICABLE, StallKind.UNTIMED, (untimed,))
        return super().judge(state, view, parameters)

    def judge_at(
        self,
        state: StalledTrainingRuleState,
        view: RunView,
        parameters: StalledTrainingRuleParameters,
        *,
        now: float,
        progress_at: float,
    ) -> RuleResult:
        """Judge a run by the clock, all times in epoch seconds.

        ``progress_at`` is when it last wrote anything, of whatever worker; before that, when the rule began to wait. A
        run that has ended is judged by its steps alone.
        """
        last = max(progress_at, state.saved_at or progress_at)
        gap, patience = now - last, patience_s(parameters, state.longest_s)
        fires = gap > patience
        if view.closed or (not fires and state.step is None):
            return self.judge(state, view, parameters)
        check = Check(
            step=0 if state.step is None else state.step,
            at=now,
            fires=fires,
            kind=StallKind.WAITS if fires else StallKind.RECENT,
            facts=_facts(state.step, gap, patience, last),
            value=gap,
            threshold=patience,
        )
        return self.result(state, check, view, parameters, onset=last + patience)


def patience_s(parameters: StalledTrainingRuleParameters, longest_s: float) -> float:
    """Return for how many seconds no step is waited for; ``longest_s`` is the longest time that one took."""
    return max(float(parameters.threshold), RHYTHM * longest_s)


def _kind(gap: float, patience: float, parameters: StalledTrainingRuleParameters, longest_s: float) -> StallKind:
    if gap <= patience:
        return StallKind.GOES_ON
    if gap > max(INTERRUPTED_S, float(parameters.threshold)):
        return StallKind.RESUMED
    return StallKind.STALLED if longest_s else StallKind.FIRST_GAP


def _facts(
    before: int | None, gap: float, patience: float, since: float, until: StepView | None = None
) -> tuple[Fact, ...]:
    """Return the facts of a gap after the step ``before``, and until another one, if there is one."""
    return (
        *([] if before is None else [Fact(name="step", value=before, unit="steps", start=since, end=since)]),
        Fact(
            name="time_without_step",
            value=gap,
            unit="s",
            start=since,
            end=since + max(gap, 0.0),
            threshold=patience,
        ),
        *([] if until is None else [step_number("until_step", until.step)]),
    )


def _progress(state: StalledTrainingRuleState, step: StepView) -> None:
    state.step = step.step
    state.saved_at = step.at if state.saved_at is None else max(state.saved_at, step.at)
