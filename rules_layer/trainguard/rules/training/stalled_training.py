"""StalledTrainingRule: training has saved nothing for too long.

Source: AWS documentation of StalledTrainingRule. A gap is a stall where it is also twice the longest one before, as a
run has its own rhythm; a gap of over six hours after which steps go on is a resumed run.
"""

from trainguard.core.finding import Fact
from trainguard.core.records import Status
from trainguard.core.units import show_duration
from trainguard.formats.tensors.step_view import StepView
from trainguard.ledger.bucket import Bucket
from trainguard.rules.change import ChangeCode
from trainguard.rules.protocol import PositiveInt
from trainguard.rules.rule_result import FactSheet, Measure, RuleResult, Words
from trainguard.rules.spec import ParameterHelp
from trainguard.rules.training.readings import step_check
from trainguard.rules.training.series import step_number
from trainguard.rules.training.step_rule import Check, RunView, StepParameters, StepRule, StepState
from trainguard.rules.training.step_words import filled, step_spec

_WITHOUT_GAP = {
    "first step": "Step {step}: it is the first saved step, and no time without one was measured yet.",
    "no times": (
        "The file has no times: its {untimed_steps:counted step} all have that at which it was saved. Event files of "
        "TensorBoard and debug-output have times."
    ),
    "ended": "Training has ended.",
    "not running": "The job's status is {job_status}: whether it still trains is not known.",
    "GPUs work": (
        "No step was saved for {time_without_step:duration}, and the GPUs worked on: they were busy for "
        "{gpus_busy:percent} of the time."
    ),
    "newest object": "The newest object came {time_since_object:duration} before the last look.",
}
_COMPARED = {
    "first gap": "it is the first time between two steps, and tells how often this run saves one",
    "resumed": "the run was stopped then, and resumed",
    **dict.fromkeys(("stalled", "waits"), "that is above the threshold of {threshold}"),
}


def _words(sheet: FactSheet) -> Words:
    kind = sheet.kind
    if kind in _WITHOUT_GAP:
        return Words(filled(sheet, _WITHOUT_GAP[kind]))
    threshold = show_duration(float(sheet["time_without_step"].threshold or 0.0))
    beginning, since = "No step was saved", "since the rule began to wait"
    if sheet.get("step") is not None:
        beginning, since = "Step {step}: no step was saved", "after step {step}"
    after = ", until step {until_step}" if sheet.get("until_step") is not None else ""
    if not after and not sheet.past:
        after = ", and training has not ended"
    compared = _COMPARED.get(kind, "that is not above the threshold of {threshold}")
    template = f"{beginning} for {{time_without_step:duration}} {since}{after}; {compared}."
    reason = filled(sheet, template, threshold=threshold)
    if kind not in ("stalled", "waits"):
        return Words(reason)
    advice = (
        "Look at the job's log and at its GPUs: a dead worker, a collective that waits, a data loader that hangs. If "
        f"steps are saved less often than every {threshold} on purpose, raise the threshold above the save interval."
    )
    return Words(reason, advice, "training stalled")


RHYTHM = 2.0
INTERRUPTED_S = 21_600.0


class StalledTrainingRuleParameters(StepParameters, frozen=True, kw_only=True):
    threshold: PositiveInt = 1800
    stop_training_on_fire: bool = False
    training_job_name_prefix: str | None = None


class StalledTrainingRuleState(StepState, kw_only=True):
    """The newest step and its time, epoch seconds, None before the first; ``longest_s`` is the longest healthy gap."""

    step: int | None = None
    saved_at: float | None = None
    longest_s: float = 0.0


class StalledTrainingRule(StepRule[StalledTrainingRuleParameters, StalledTrainingRuleState]):
    by_default = True
    spec = step_spec(
        "StalledTrainingRule",
        title="Stalled training",
        looks_at="when steps are saved",
        fires_when="none was saved for too long, training has not ended and no GPU is known to work",
        condition=(
            "no step is saved for more than {threshold} s, and for twice as long as ever before between two steps"
        ),
        measures=(Measure("time without a saved step", "s"),),
        parameters={
            "threshold": ParameterHelp("seconds", "a longer time without a saved step is a stall"),
            "stop_training_on_fire": ParameterHelp(
                "", "launch code that sets it tags the job so that this rule may stop it"
            ),
            "training_job_name_prefix": ParameterHelp(
                "", "accepted; the job that stalled is known, and no other is stopped"
            ),
        },
        needs="It checks when steps are saved: record the losses, with CollectionConfig(name='losses').",
        on_scalars="It checks when steps are saved: log scalars with TensorBoard, whose files have times.",
        of_losses=False,
        changes={"": ChangeCode.FIND_HANG},
        say=_words,
        kinds=(*_WITHOUT_GAP, "goes on", "first gap", "resumed", "stalled", "recent", "waits"),
        bound=("step", "saved without a time"),
        claims=dict.fromkeys(("stalled", "waits"), (Bucket.HANG, Bucket.IDLE)),
    )

    def watch(self, state: StalledTrainingRuleState, step: StepView, parameters: StalledTrainingRuleParameters) -> None:
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
            return step_check(step, (), fires=False, kind="first step")
        gap, patience = step.at - saved_at, patience_s(parameters, state.longest_s)
        kind = _kind(gap, patience, parameters, state.longest_s)
        fires = kind == "stalled"
        if kind in ("goes on", "first gap"):
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
            return RuleResult.of(self.text, Status.NOT_APPLICABLE, "no times", (untimed,))
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
        """Judge a run by the clock, times in epoch seconds; ``progress_at`` is when any worker last wrote anything."""
        last = max(progress_at, state.saved_at or progress_at)
        gap, patience = now - last, patience_s(parameters, state.longest_s)
        fires = gap > patience
        if view.closed or (not fires and state.step is None):
            return self.judge(state, view, parameters)
        check = Check(
            step=0 if state.step is None else state.step,
            at=now,
            fires=fires,
            kind="waits" if fires else "recent",
            facts=_facts(state.step, gap, patience, last),
            value=gap,
            threshold=patience,
        )
        return self.result(state, check, view, parameters, onset=last + patience)


def patience_s(parameters: StalledTrainingRuleParameters, longest_s: float) -> float:
    """Return for how many seconds no step is waited for; ``longest_s`` is the longest time that one took."""
    return max(float(parameters.threshold), RHYTHM * longest_s)


def _kind(gap: float, patience: float, parameters: StalledTrainingRuleParameters, longest_s: float) -> str:
    if gap <= patience:
        return "goes on"
    if gap > max(INTERRUPTED_S, float(parameters.threshold)):
        return "resumed"
    return "stalled" if longest_s else "first gap"


def _facts(
    before: int | None, gap: float, patience: float, since: float, until: StepView | None = None
) -> tuple[Fact, ...]:
    return (
        *([] if before is None else [Fact(name="step", value=before, unit="steps", start=since, end=since)]),
        Fact(name="time_without_step", value=gap, unit="s", start=since, end=since + max(gap, 0.0), threshold=patience),
        *([] if until is None else [step_number("until_step", until.step)]),
    )


def _progress(state: StalledTrainingRuleState, step: StepView) -> None:
    state.step = step.step
    state.saved_at = step.at if state.saved_at is None else max(state.saved_at, step.at)
