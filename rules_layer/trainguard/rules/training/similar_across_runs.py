"""SimilarAcrossRuns: a tensor differs from that of another run at the same step.

Source: AWS documentation of SimilarAcrossRuns (it compares tensors of a base run with those of another). Tensors are
the same as far as ``numpy.allclose`` says with its defaults, NaN being the same as NaN; a step or tensor that the other
run lacks is passed over.
"""

import math
from typing import ClassVar

from trainguard.errors import RunMissingError
from trainguard.finding import Fact
from trainguard.rules.parameter_help import STEPS, ParameterHelp
from trainguard.rules.rule_result import Measure
from trainguard.rules.spec import RuleSpec
from trainguard.rules.training import values_text
from trainguard.rules.training.compare import Closeness, furthest
from trainguard.rules.training.parameter_help import RANGE_HELP, SELECTION_HELP
from trainguard.rules.training.readings import Reading, checked, used
from trainguard.rules.training.selecting import SelectingParameters
from trainguard.rules.training.step_rule import Check, StepRule, StepState
from trainguard.rules.training.tensor_words import measured
from trainguard.rules.training.values_text import DIFFERENCE, SimilarKind
from trainguard.tensors.step_view import StepView

SAME = Closeness(1e-5, 1e-8, equal_nan=True)


class SimilarAcrossRunsParameters(SelectingParameters, frozen=True, kw_only=True):
    """The other run, under any of the names that the managed service has for it."""

    rule_name: ClassVar[str] = "SimilarAcrossRuns"

    other_trials: str | None = None
    other_trial: str | None = None
    other_trial_0: str | None = None

    def __post_init__(self) -> None:
        """Refuse a rule without another run, and one with several."""
        super().__post_init__()
        runs = self._runs()
        if len(runs) != 1:
            field = "other_trials" if self.other_trials is not None or not runs else "other_trial"
            raise self.fault(
                field, ", ".join(sorted(runs)) or None, "one other run: a job's name, its S3 URI, or a folder"
            )

    def _runs(self) -> set[str]:
        given = (self.other_trials, self.other_trial, self.other_trial_0)
        return {word.strip() for text in given if text for word in text.split(",") if word.strip()}

    @property
    def other_run(self) -> str:
        """The run to compare with."""
        return next(iter(self._runs()))


SPEC = RuleSpec(
    name="training/SimilarAcrossRuns",
    family="training",
    title="Similarity with another run",
    looks_at="the selected tensors of two runs; where nothing is selected, all",
    fires_when="one differs from that of the other run at the same step",
    condition="a tensor differs from that of {other_trials} at the same step",
    measures=(Measure("difference of an entry"),),
    counts=STEPS,
    parameters={
        "other_trials": ParameterHelp(
            "run", "the other run: a job's name, its s3://bucket/prefix/job, or a folder; required"
        ),
        "other_trial": ParameterHelp("run", "another name of other_trials"),
        "other_trial_0": ParameterHelp("run", "another name of other_trials, which the managed service sets"),
        **SELECTION_HELP,
        **RANGE_HELP,
    },
    text=values_text.similar_across_runs,
)


class SimilarAcrossRuns(StepRule[SimilarAcrossRunsParameters, StepState]):
    """Fires while a tensor differs from that of another run."""

    spec: ClassVar[RuleSpec] = SPEC
    parameters_type = SimilarAcrossRunsParameters
    state_type = StepState
    needs = values_text.SIMILAR_NEEDS

    def check(self, state: StepState, step: StepView, parameters: SimilarAcrossRunsParameters) -> Check | None:
        """Compare each tensor that both runs hold at the step."""
        try:
            other = step.other_run(parameters.other_run)
        except RunMissingError as fault:
            state.leave_out(str(fault))
            return None
        if other is None:
            return None
        there, there_too = other, frozenset(other.names)
        tensors = parameters.tensors(step) if parameters.selects else step.names
        readings = []
        for tensor in tensors:
            if tensor not in there_too:
                continue
            same = used(state, lambda view, name: SAME.tensors(view, there, name), step, tensor)
            if same is not None:
                readings.append(_reading(state, step, there, tensor, same=same))
        return checked(step, readings, lambda reading: _facts(reading, parameters.other_run))


def _reading(state: StepState, step: StepView, there: StepView, tensor: str, *, same: bool) -> Reading:
    """Return the reading of a tensor; its value is open where it is the same, or no number says the difference."""
    apart = None if same else used(state, lambda view, name: furthest(SAME, view, there, name), step, tensor)
    kind = SimilarKind.SAME if same else SimilarKind.DIFFERS
    if apart is None:
        return Reading(tensor, math.nan, None, not same, math.inf, kind)
    return Reading(tensor, apart[0], apart[1], True, apart[0] / apart[1], kind)


def _facts(reading: Reading, run: str) -> list[Fact]:
    facts = [Fact(name="other_run", value=run)]
    if reading.fires:
        facts.append(Fact(name="tensor", value=str(reading.tensor)))
    if reading.fires and reading.threshold is not None:
        facts.append(measured(DIFFERENCE, reading))
    return facts
