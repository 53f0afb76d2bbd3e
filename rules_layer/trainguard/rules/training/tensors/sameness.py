"""UnchangedTensor and SimilarAcrossRuns: tensors that are the same over steps or runs.

Source: AWS documentation; equality is that of ``numpy.allclose``, across runs with NaN the same as NaN.
"""

import math
from typing import Annotated, ClassVar

import msgspec

from trainguard.core.errors import RunMissingError
from trainguard.core.finding import Fact
from trainguard.formats.tensors.step_view import StepView
from trainguard.rules.change import ChangeCode
from trainguard.rules.protocol import NonNegative
from trainguard.rules.rule_result import FactSheet, Measure, Words
from trainguard.rules.spec import ParameterHelp
from trainguard.rules.training.readings import Closeness, MetricReading, checked, furthest, known, measured, used
from trainguard.rules.training.step_rule import Check, SelectingParameters, StepRule, StepState
from trainguard.rules.training.step_words import SELECTION_HELP, SELECTS, filled, fires, said, step_spec, worded

UNCHANGED_KINDS, SIMILAR_KINDS = ("unchanged", "changed"), ("differs", "same")


def _similar(sheet: FactSheet) -> Words:
    if not fires(sheet):
        return said(sheet, filled(sheet, "all tensors that both runs hold are the same as in run {other_run}"))
    sentence = "{tensor} {differed/differs} from that of run {other_run} at the same step"
    if sheet.get("difference") is not None:
        sentence += ", by {difference:.6g}; up to {difference.threshold:.6g} counts as the same"
    return said(
        sheet,
        filled(sheet, sentence),
        "Compare seeds, data, their order and versions of the two runs from the first step that differs on. Some "
        "operations on GPUs are not deterministic unless the framework is set to make them so.",
        "a tensor differed from the other run's",
    )


class UnchangedTensorParameters(SelectingParameters, frozen=True, kw_only=True):
    required: ClassVar[bool] = True

    num_steps: Annotated[int, msgspec.Meta(ge=2)] = 3
    rtol: NonNegative = 1e-5
    atol: NonNegative = 1e-8
    equal_nan: bool = False


class UnchangedTensor(StepRule[UnchangedTensorParameters, StepState]):
    spec = step_spec(
        "UnchangedTensor",
        title="Unchanged tensors",
        looks_at="the selected tensors",
        fires_when="one has been the same over several of its saved steps",
        condition="a tensor is the same over its last {num_steps} saved steps",
        measures=(Measure("saved steps without a change"),),
        parameters={
            **SELECTION_HELP,
            "num_steps": ParameterHelp("saved steps", "over how many a tensor must be the same, this one included"),
            "rtol": ParameterHelp("", "a change of this share of a value, or less, is none"),
            "atol": ParameterHelp("", "a change of this much, or less, is none"),
            "equal_nan": ParameterHelp("", "whether NaN is the same as NaN"),
        },
        needs=(
            "It checks the tensors that collection_names and tensor_regex select: record them in full, at several "
            "steps, with a CollectionConfig."
        ),
        on_scalars=SELECTS,
        of_losses=False,
        changes={"": ChangeCode.CHECK_TRAINING_LOOP},
        say=worded(
            {
                "unchanged": "{same_steps.series} {was/is} the same at its last {same_steps:.0f} saved steps, which "
                "is the threshold",
                "changed": "{same_steps.series} changed: it is the same at {same_steps:.0f} of the "
                "{same_steps.threshold:.0f} saved steps that count",
            },
            "Check that {same_steps.series} is meant to change: an optimizer that does not hold it, frozen layers, a "
            "learning rate of zero, or a loss that does not depend on it.",
            "a tensor no longer changed",
        ),
        kinds=UNCHANGED_KINDS,
    )

    def check(self, state: StepState, step: StepView, parameters: UnchangedTensorParameters) -> Check | None:
        """Compare each tensor with its values at the saved steps before this one, of the same mode."""
        closeness = Closeness(parameters.rtol, parameters.atol, equal_nan=parameters.equal_nan)
        needed = parameters.num_steps

        def unchanged(now: StepView, tensor: str) -> int | None:
            """Return over how many saved steps the tensor has not changed; None where it was saved too rarely."""
            same = 1
            earlier = now.earlier(tensor, needed - 1)
            for before in earlier:
                if not closeness.tensors(before, now, tensor):
                    return same
                same += 1
            return same if len(earlier) == needed - 1 else None

        tensors = parameters.tensors(step)
        state.waiting += bool(tensors)
        first: dict[int, MetricReading] = {}
        readings = [
            first.setdefault(same, MetricReading(tensor, float(same), float(needed), same >= needed, float(same)))
            for same, tensor in known(state, unchanged, step, tensors)
        ]
        return checked(step, readings, ("same_steps", "steps"), kinds=UNCHANGED_KINDS)


SAME = Closeness(1e-5, 1e-8, equal_nan=True)
# Begins the names of checksums and hashes, which differ as soon as a bit does.
OF_RANKS = "trainguard/"


class SimilarAcrossRunsParameters(SelectingParameters, frozen=True, kw_only=True):
    """The other run, under any of the names that the managed service has for it."""

    other_trials: str | None = None
    other_trial: str | None = None
    other_trial_0: str | None = None

    def __post_init__(self) -> None:
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
        return next(iter(self._runs()))


class SimilarAcrossRuns(StepRule[SimilarAcrossRunsParameters, StepState]):
    spec = step_spec(
        "SimilarAcrossRuns",
        title="Similarity with another run",
        looks_at="the selected tensors of two runs; where nothing is selected, all",
        fires_when="one differs from that of the other run at the same step",
        condition="a tensor differs from that of {other_trials} at the same step",
        measures=(Measure("difference of an entry"),),
        parameters={
            "other_trials": ParameterHelp(
                "run", "the other run: a job's name, its s3://bucket/prefix/job, or a folder; required"
            ),
            "other_trial": ParameterHelp("run", "another name of other_trials"),
            "other_trial_0": ParameterHelp("run", "another name of other_trials, which the managed service sets"),
            **SELECTION_HELP,
        },
        needs="It checks tensors that this run and the other one saved at the same steps: record the same in both.",
        changes={"": ChangeCode.FIX_SEEDS},
        say=_similar,
        kinds=SIMILAR_KINDS,
    )

    def check(self, state: StepState, step: StepView, parameters: SimilarAcrossRunsParameters) -> Check | None:
        try:
            other = step.other_run(parameters.other_run)
        except RunMissingError as fault:
            state.leave_out(str(fault))
            return None
        if other is None:
            return None
        there, there_too = other, frozenset(other.names)
        readings = []
        for tensor in parameters.tensors(step) if parameters.selects else step.names:
            if tensor not in there_too or tensor.startswith(OF_RANKS):
                continue
            same = used(state, lambda view, name: SAME.tensors(view, there, name), step, tensor)
            if same is None:
                continue
            apart = None if same else used(state, lambda view, name: furthest(SAME, view, there, name), step, tensor)
            if apart is None:
                readings.append(MetricReading(tensor, math.nan, None, not same, math.inf))
            else:
                readings.append(MetricReading(tensor, apart[0], apart[1], True, apart[0] / apart[1]))

        def facts(reading: MetricReading) -> list[Fact]:
            found = [Fact(name="other_run", value=parameters.other_run)]
            if reading.fires:
                found.append(Fact(name="tensor", value=str(reading.tensor)))
            if reading.fires and reading.threshold is not None:
                found.append(measured("difference", reading))
            return found

        return checked(step, readings, facts, kinds=SIMILAR_KINDS)
