"""StalledTrainingRule: training has saved nothing for too long.

Source: AWS documentation of StalledTrainingRule. While a job runs a clock judges it; of steps that are there already
the gaps between their event times do, so that a gap is found again in a finished run.
"""

from typing import ClassVar

from trainguard.records import Status
from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.protocol import PositiveInt
from trainguard.rules.rule_result import Measure, RuleResult
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training.parameter_help import RANGE_HELP
from trainguard.rules.training.step_rule import Check, RunView, StepParameters, StepRule, StepState
from trainguard.rules.units import counted, show_duration
from trainguard.tensors.step_view import StepView


class StalledTrainingRuleParameters(StepParameters, frozen=True, kw_only=True):
    """``threshold`` in seconds; stops are asked for as for any rule, or here."""

    rule_name: ClassVar[str] = "StalledTrainingRule"

    threshold: PositiveInt = 1800
    stop_training_on_fire: bool = False
    training_job_name_prefix: str | None = None


class StalledTrainingRuleState(StepState, kw_only=True):
    """The newest step and when it was saved, epoch seconds; None before the first."""

    step: int | None = None
    saved_at: float | None = None


SPEC = RuleSpec(
    name="training/StalledTrainingRule",
    family="training",
    title="Stalled training",
    looks_at="when steps are saved",
    fires_when="none was saved for too long and training has not ended",
    condition="no step is saved for more than {threshold} s",
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
    clause="training stalled",
)


class StalledTrainingRule(StepRule[StalledTrainingRuleParameters, StalledTrainingRuleState]):
    """Fires while no step is saved for longer than the threshold."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = StalledTrainingRuleParameters
    state_type = StalledTrainingRuleState
    needs = "It checks when steps are saved: record the losses, with CollectionConfig(name='losses')."
    bound = ("step", "saved without a time")

    def watch(self, state: StalledTrainingRuleState, step: StepView, parameters: StalledTrainingRuleParameters) -> None:
        """Note when a step out of range was saved."""
        del parameters
        if step.timed:
            _progress(state, step)

    def check(
        self, state: StalledTrainingRuleState, step: StepView, parameters: StalledTrainingRuleParameters
    ) -> Check | None:
        """Measure the gap before a step. One that is too long stalled after the step before, at its threshold."""
        if not step.timed:
            state.left_out += 1
            return None
        before, saved_at = state.step, state.saved_at
        _progress(state, step)
        if before is None or saved_at is None:
            reason = f"Step {step.step}: it is the first saved step, and no time without one was measured yet."
            return Check(step=step.step, at=step.at, fires=False, reason=reason)
        gap = step.at - saved_at
        fires = gap > parameters.threshold
        return Check(
            step=before if fires else step.step,
            at=saved_at + parameters.threshold if fires else step.at,
            fires=fires,
            reason=_say(before, gap, parameters, fires=fires, after=f"until step {step.step}"),
            value=gap,
            threshold=float(parameters.threshold),
        )

    def judge(
        self, state: StalledTrainingRuleState, view: RunView, parameters: StalledTrainingRuleParameters
    ) -> RuleResult:
        """Judge the gaps between steps; a file that gives no times says nothing of them."""
        if state.latest is None and state.left_out:
            return RuleResult(
                Status.NOT_APPLICABLE,
                f"The file has no times: its {counted(state.left_out, 'step')} all have that at which it was saved. "
                "Event files of TensorBoard and debug-output have times.",
            )
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
        gap = now - last
        fires = gap > parameters.threshold
        if view.closed or (not fires and state.step is None):
            return self.judge(state, view, parameters)
        threshold = float(parameters.threshold)
        check = Check(
            step=0 if state.step is None else state.step,
            at=now,
            fires=fires,
            reason=_say(state.step, gap, parameters, fires=fires, after="and training has not ended"),
            value=gap,
            threshold=threshold,
        )
        return self.result(state, check, view, parameters, onset=last + threshold)

    def advice(self, check: Check, parameters: StalledTrainingRuleParameters) -> str:
        """Say where to look, and when a long gap is none."""
        del check
        return _advice(parameters)


def _progress(state: StalledTrainingRuleState, step: StepView) -> None:
    state.step = step.step
    state.saved_at = step.at if state.saved_at is None else max(state.saved_at, step.at)


def _advice(parameters: StalledTrainingRuleParameters) -> str:
    return (
        "Look at the job's log and at its GPUs: a dead worker, a collective that waits, a data loader that hangs. "
        f"If steps are saved less often than every {parameters.threshold:,} s on purpose, raise the threshold above "
        "the save interval."
    )


def _say(step: int | None, gap: float, parameters: StalledTrainingRuleParameters, *, fires: bool, after: str) -> str:
    since = "since the rule began to wait" if step is None else f"after step {step}"
    compared = "above" if fires else "not above"
    beginning = "No step was saved" if step is None else f"Step {step}: no step was saved"
    return (
        f"{beginning} for {show_duration(gap)} {since}, {after}; that is {compared} the threshold of "
        f"{show_duration(parameters.threshold)}."
    )
