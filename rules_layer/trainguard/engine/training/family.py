"""The family of rules over what training computes."""

from collections.abc import Mapping, Sequence
from typing import Any

from trainguard.core.job_policy import ALL
from trainguard.core.ports import ProfileObjects
from trainguard.core.records import JobRecord, NodeRecord, StreamKey
from trainguard.engine.family import Family, ObjectEvents, ObjectSource
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.session import Session, Stream
from trainguard.engine.training.debug_session import DebugSession, state_of
from trainguard.engine.training.keys import (
    EXPECTED_KEYS,
    SCALAR_FILES,
    SCALARS,
    STALLED,
    TRAINING,
    TrainingKey,
    match_key,
)
from trainguard.engine.training.runs import SharedRuns
from trainguard.engine.training.scalar_session import ScalarSession
from trainguard.engine.training.scalar_session import state_of as scalar_state_of
from trainguard.engine.training.stream import StepStream
from trainguard.engine.training.streams import TrainingStreams
from trainguard.formats.tensors.debug.json_files import MAX_INDEX_BYTES
from trainguard.formats.tensors.debug.keys import ALL_WORKERS
from trainguard.rules.family_rules import TRAINING_TITLE, bare
from trainguard.rules.training.registry import SETTINGS_TYPES, TRAINING_RULES, TRUSTED_RULES, AnyStepRule

DEFAULT_NAMES = ("training/ExplodingTensor", STALLED, *(rule.name for rule in TRUSTED_RULES))


class TrainingFamily(Family):
    """Debug-output in one stream over all workers, and files of scalars in another; by default ``defaults`` run."""

    name = TRAINING
    title = TRAINING_TITLE
    units = "streams"
    expected_keys = EXPECTED_KEYS
    # An index file is written after its event file, and stands for it.
    events = ObjectEvents(
        wildcards=("*/debug-output/index/*.json", "*/events.out.tfevents.*"),
        ends=(
            "_collections.json",
            "/debug-output/training_job_end.ts",
            "/trainer_state.json",
            "/metrics.csv",
            "log.csv",
            "history.csv",
            "training.csv",
            "progress.csv",
            "/results.csv",
            "/training.log",
        ),
    )
    object_cap_bytes = MAX_INDEX_BYTES
    # Of checkpoints the trainers' logs alone, never the models' weights.
    reads = (
        "*/debug-output/*",
        "*/tensorboard-output/*",
        "*/trainer-output/*",
        "*/checkpoints/*trainer_state.json",
        "*/checkpoints/*.csv",
        "*/checkpoints/*training.log",
        "*/checkpoints/*tfevents*",
    )
    settings_types = SETTINGS_TYPES
    report = "trainguard.report.job.coverage:TRAINING_STREAMS"

    def __init__(self, rules: Sequence[AnyStepRule] = TRAINING_RULES, defaults: Sequence[str] = DEFAULT_NAMES) -> None:
        self._rules = tuple(rules)
        self._defaults = frozenset(defaults)

    @property
    def rules(self) -> Sequence[AnyStepRule]:
        """The rules over steps."""
        return self._rules

    def chosen(self, job: JobRecord) -> Sequence[AnyStepRule]:
        """Return the rules that the job's owner named or gave a parameter; without any, the documented few."""
        named = job.training_rules
        if named is not None and not named:
            return ()
        with_parameters = {setting.partition("_")[0].rpartition("/")[2].lower() for setting in job.rule_settings}
        chosen = [
            rule
            for rule in self._rules
            if (named is not None and (rule.name in named or ALL in named))
            or bare(rule.name).lower() in with_parameters
        ]
        return chosen or [rule for rule in self._rules if rule.name in self._defaults]

    def parse_key(self, key: str) -> TrainingKey | None:
        """Read a key of tensors or scalars."""
        return match_key(key)

    def open_session(self, record: NodeRecord, source: ObjectSource, plan: RulePlan) -> Session[Any]:
        """Return the session of a stream."""
        if record.key.stream == SCALARS:
            return ScalarSession(record, source, plan)
        return DebugSession(record, source, plan)

    def open_stream(self, record: NodeRecord, plan: RulePlan) -> Stream:
        """Return a stream from its item."""
        if record.key.stream == SCALARS:
            return StepStream(record.key.node, scalar_state_of(record), plan)
        return StepStream(record.key.node, state_of(record), plan)

    def streams_of(
        self, records: Mapping[StreamKey, NodeRecord], streams: Mapping[StreamKey, Stream]
    ) -> TrainingStreams:
        """Return the family's streams of a job."""
        return TrainingStreams(records, streams)

    def unit_rules(self, stream: str) -> Sequence[str]:
        """Return the names of the rules over a stream: every rule runs on both."""
        del stream
        return [rule.name for rule in self._rules]

    def share(self, objects: ProfileObjects) -> SharedRuns:
        """Return the collections of runs, which are read once."""
        del objects
        return SharedRuns()

    def expected(self, job: JobRecord, known: set[StreamKey]) -> set[StreamKey]:
        """Return debug-output for a job whose owner named rules, unless its scalars are there to be judged."""
        if not job.training_rules or StreamKey(job.job, SCALAR_FILES, SCALARS) in known:
            return set()
        return {StreamKey(job.job, ALL_WORKERS, TRAINING)}


TRAINING_HEALTH = TrainingFamily()
