"""A job's tensors and scalars: the keys of their objects, and streams of complete steps with states of rules.

A trainer's files in all checkpoints are one file that grows.
"""

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from trainguard.core.errors import TelemetryFormatError
from trainguard.core.layout import FUTURE_S, JOB_NAME, MAX_KEY_LENGTH, EndKey, ProfileRoot, root_of
from trainguard.core.records import Status, StreamRecord
from trainguard.engine.family import ObjectSource
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.rule_runner import Evaluate
from trainguard.engine.streams.session import NEWEST, STREAM_SILENT_S, Applied, Session, Stream, StreamState
from trainguard.engine.verdicts.verdict import Fire
from trainguard.formats.tensors.debug.keys import ALL_WORKERS, STREAM, TensorKey
from trainguard.formats.tensors.debug.keys import EXPECTED_KEYS as EXPECTED_TENSOR_KEYS
from trainguard.formats.tensors.debug.keys import match_key as match_tensor_key
from trainguard.formats.tensors.scalars.names import ScalarFile, ScalarNames, match_scalar_file
from trainguard.formats.tensors.step_view import ReductionKind, StepView, Tensor
from trainguard.rules.family_rules import TRAINING_SETTINGS
from trainguard.rules.protocol import RuleParameters
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.training.registry import AnyStepRule
from trainguard.rules.training.selection import ScalarNamesParameters
from trainguard.rules.training.stalled_training import INTERRUPTED_S, RHYTHM
from trainguard.rules.training.step_rule import RunView, StepRule, StepState
from trainguard.rules.training.step_words import FoundScalars

TRAINING = STREAM
STALLED = f"{TRAINING}/StalledTrainingRule"

COMPARES_RUNS = f"{TRAINING}/SimilarAcrossRuns"
SCALARS = f"{TRAINING}/scalars"
# The one unit of the scalar stream; not that of debug-output, since each has rows of its own for a rule.
SCALAR_FILES = "scalar-files"

TENSORBOARD = "tensorboard-output"
SCALAR_FOLDERS = (TENSORBOARD, "trainer-output", "checkpoints")
_MARK = "|".join(SCALAR_FOLDERS)
_SCALAR = re.compile(
    rf"(?P<prefix>(?:(?!(?:{_MARK})/)[^/]+/)*)(?!(?:{_MARK})/){JOB_NAME}/(?P<mark>{_MARK})/(?P<name>(?:[^/]+/){{0,12}}[^/]+)"
)
_CHECKPOINT = re.compile(r"checkpoint-\d{1,12}/(?=trainer_state\.json$)")

EXPECTED_KEYS = (
    f"{EXPECTED_TENSOR_KEYS}, <job>/{{{','.join(SCALAR_FOLDERS)}}}/…/events.out.tfevents.*, "
    "…/trainer_state.json, …/metrics.csv or …/training.log"
)


@dataclass(frozen=True, slots=True)
class ScalarKey:
    """A file of scalars below ``mark``, one of `SCALAR_FOLDERS`; ``file`` is without the folder of its checkpoint."""

    root: ProfileRoot
    mark: str
    file: ScalarFile
    node: str = SCALAR_FILES
    stream: str = SCALARS
    named_at: float | None = None

    @property
    def name(self) -> str:
        """The growing file's name below the job's folder."""
        return f"{self.mark}/{self.file.name}"

    @property
    def source(self) -> str:
        return f"{self.mark}/{self.file.source}"


TrainingKey = TensorKey | ScalarKey | EndKey


def match_key(key: str) -> TrainingKey | None:
    """Read a key of the family, or None; UnreadableKeyError when it lies in a folder that is not its step's."""
    found = match_scalar_key(key) or match_tensor_key(key)
    return EndKey(found.root, found.stream, unit=ALL_WORKERS) if isinstance(found, EndKey) else found


def match_scalar_key(key: str) -> ScalarKey | None:
    match = _SCALAR.fullmatch(key) if len(key) <= MAX_KEY_LENGTH else None
    file = None if match is None else match_scalar_file(_CHECKPOINT.sub("", match["name"]))
    return None if match is None or file is None else ScalarKey(root_of(match), match["mark"], file)


def scalar_names(plan: RulePlan) -> ScalarNames:
    """Return the meanings of names; the documented ones where a pattern of the settings cannot be used."""
    parameters = plan.parameters.get(TRAINING_SETTINGS[0])
    return ScalarNames(parameters.replaced() if isinstance(parameters, ScalarNamesParameters) else {})


class StepStreamState(StreamState, kw_only=True):
    """What is stored of a stream of steps; times are epoch seconds.

    ``watermark_s`` is the time of the newest step, ``steps`` counts those that rules were shown. ``progress_s`` is when
    S3 got the stream's newest object, ``looked_s`` when S3 was last asked without a message. ``longest_s`` is the
    longest time, seconds, between two steps that was no stall. ``ended`` says whether the end mark was met.
    """

    steps: int = 0
    step: int | None = None
    progress_s: float | None = None
    looked_s: float = 0.0
    longest_s: float = 0.0
    ended: bool = False

    @property
    def no_data(self) -> str | None:
        """Why a stream that has ended has no data, in a sentence; None where it has."""
        return None

    @property
    def scalars(self) -> FoundScalars | None:
        return None

    @property
    def notes(self) -> Sequence[str]:
        return ()

    def shorten(self) -> str | None:
        """Give up something to become smaller; return the counter that names it, None where nothing is left."""
        return None


S = TypeVar("S", bound=StepStreamState)

STEP = "step"
# How much newer the newest object must be for the item to be written for its sake alone.
PROGRESS_S = 60.0


class StepStream(Stream[S]):
    """Works on a StepsState. ``after_step`` is called once rules were shown a step."""

    after_step: Callable[[], None] | None = None

    @staticmethod
    def rules_of(plan: RulePlan) -> list[AnyStepRule]:
        return [rule for rule in step_rules(plan) if plan.by_event_time or rule.name != STALLED]

    def restart(self, why: str) -> None:
        """Let the rules forget the steps, and not what was alerted; ``why`` is a sentence for their reasons."""
        raised = self._rules.raised
        for entry in self.state.stored_rules.values():
            entry.data, entry.reset_reason = b"", why
        self.state.steps, self.state.step = 0, None
        self._rules = self._runner()
        self._rules.raised += raised
        self._rules.due.update(self.state.stored_rules)

    def apply(self, step: "StepView | WatchedStep", *, again: bool = False) -> list[Fire]:
        """Show the rules a complete step, not before the watermark; return its fires, none for one shown ``again``."""
        state = self.state
        alerted = {name: entry.history.alerted for name, entry in state.stored_rules.items()} if again else {}
        self._note_rhythm(step)
        state.watermark_s = max(step.at, state.watermark_s or 0.0)
        state.steps += 1
        state.step = step.step

        def observe(rule: AnyStepRule, of_rule: StepState, parameters: RuleParameters) -> None:
            rule.observe(of_rule, cast("StepView", step), parameters)

        fires = self._run(observe)
        if self.after_step is not None:
            self.after_step()
        for rule, episode in alerted.items():
            state.stored_rules[rule].history.alerted = episode
        return [] if again else fires

    def degrade(self) -> str | None:
        return self.state.shorten()

    def is_overdue(self, now: float) -> bool:
        """Whether nothing came for as long as StalledTrainingRule waits, as far as is known at ``now``."""
        patience_s = self._patience_s()
        silent_s = now - (self.state.progress_s or now)
        return patience_s is not None and not self.state.ended and silent_s > patience_s

    def _patience_s(self) -> float | None:
        parameters = self._plan.parameters.get(STALLED)
        if parameters is None or all(rule.name != STALLED for rule in step_rules(self._plan)):
            return None
        return max(float(parameters.in_force()["threshold"]), RHYTHM * self.state.longest_s)

    def _note_rhythm(self, step: "StepView | WatchedStep") -> None:
        state = self.state
        if not step.timed or state.watermark_s is None:
            return
        gap_s, patience_s = step.at - state.watermark_s, self._patience_s()
        if patience_s is None or gap_s <= patience_s or (state.longest_s == 0.0 and gap_s <= INTERRUPTED_S):
            state.longest_s = max(state.longest_s, gap_s)

    def _judge(self, *, closed: bool) -> Evaluate[AnyStepRule]:
        """Return what judges a rule's state; of a stream that ended without data, every rule is in error."""
        view = RunView(self.state.steps, closed=closed, scalars=self.state.scalars)
        no_data = self.state.no_data if closed else None

        def judge(rule: AnyStepRule, state: StepState, parameters: RuleParameters) -> RuleResult:
            return rule.judge(state, view, parameters) if no_data is None else RuleResult(Status.ERROR, no_data)

        return judge


class StepSession(Session[StepStream[S]]):
    """A stream of steps in hand; each look at S3's listing says what it holds."""

    def __init__(self, record: StreamRecord, source: ObjectSource, state: S, plan: RulePlan) -> None:
        super().__init__(record, source.get, StepStream(record.key.node, state, plan))
        self._source = source
        self._woken = False
        self._progress_s = state.progress_s or 0.0
        self._looked_s = state.looked_s

    def apply(self, *, drain: bool, modified_before: float | None) -> Iterator[Applied]:
        if self._woken or drain or modified_before is not None:
            self._looked_s = 0.0 if modified_before is None else modified_before + STREAM_SILENT_S
            yield from self._apply_listed(drain=drain, modified_before=modified_before)

    @abstractmethod
    def _apply_listed(self, *, drain: bool, modified_before: float | None) -> Iterator[Applied]:
        """Apply the steps that are complete by S3's listing; all that S3 has where the stream has ended."""

    @property
    @abstractmethod
    def _waiting(self) -> dict[str, int]:
        """What waits, as stored: the scheduler has it evaluated again when nothing more comes."""

    @property
    def has_changes(self) -> bool:
        state = self.stream.state
        is_fresher = self._progress_s - (state.progress_s or 0.0) >= PROGRESS_S
        return self._waiting.keys() != self.record.pending.keys() or is_fresher or self._looked_s > state.looked_s

    def _steps_record(self, step: int | None, newest: int, *, closed: bool) -> StreamRecord:
        state = self.stream.state
        # This time depends on deliveries, and says nothing about a run that has ended.
        state.looked_s = 0.0 if closed else max(self._looked_s, state.looked_s)
        if self._progress_s:
            state.progress_s = self._progress_s
        cursors = {STEP: step, NEWEST: None if newest < 0 else newest}
        return self._record(cursors=cursors, pending=self._waiting, closed=closed)


def step_rules(plan: RulePlan) -> list[AnyStepRule]:
    return [rule for rule in plan.rules_of(TRAINING) if isinstance(rule, StepRule)]


T = TypeVar("T")


def believed(at: float, listed_at: float) -> float:
    """Return when a step was saved, epoch seconds; when S3 got its file where the time in that cannot be."""
    return at if math.isfinite(at) and 0.0 < at <= listed_at + FUTURE_S else listed_at


@dataclass(slots=True)
class WatchedStep:
    """A `StepView` of ``inner`` at the time ``at``, epoch seconds; ``faults`` says which tensors cannot be read."""

    inner: StepView
    at: float
    faults: dict[str, str] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def shape(self, name: str) -> tuple[int, ...] | None:
        return self._asked(name, lambda: self.inner.shape(name))

    def value(self, name: str) -> Tensor:
        return self._asked(name, lambda: self.inner.value(name))

    def blocks(self, name: str) -> Iterator[Tensor]:
        blocks = self._asked(name, lambda: self.inner.blocks(name))
        while True:
            block = self._asked(name, lambda: next(blocks, None))
            if block is None:
                return
            yield block

    def reduction(self, name: str, kind: ReductionKind, *, absolute: bool = False) -> float | None:
        return self._asked(name, lambda: self.inner.reduction(name, kind, absolute=absolute))

    def earlier(self, name: str, count: int) -> Sequence[StepView]:
        return self._asked(name, lambda: self.inner.earlier(name, count))

    def _asked(self, name: str, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except TelemetryFormatError as fault:
            self.faults.setdefault(name, str(fault))
            raise
