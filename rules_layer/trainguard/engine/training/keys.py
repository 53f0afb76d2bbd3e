"""Keys of a job's tensors and scalars; a trainer's files in all checkpoints are one file that grows."""

import re
from dataclasses import dataclass

from trainguard.core.layout import JOB_NAME, MAX_KEY_LENGTH, EndKey, ProfileRoot, root_of
from trainguard.engine.plan import RulePlan
from trainguard.formats.tensors.debug.keys import ALL_WORKERS, STREAM, TensorKey
from trainguard.formats.tensors.debug.keys import EXPECTED_KEYS as EXPECTED_TENSOR_KEYS
from trainguard.formats.tensors.debug.keys import match_key as match_tensor_key
from trainguard.formats.tensors.scalars.names import ScalarFile, ScalarNames, match_scalar_file
from trainguard.rules.family_rules import TRAINING_SETTINGS
from trainguard.rules.training.selection import ScalarNamesParameters

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
    """Read a key of the family, or None; ForeignKeyError when it lies in a folder that is not its step's."""
    found = match_tensor_key(key)
    if isinstance(found, EndKey):
        return EndKey(found.root, found.stream, unit=ALL_WORKERS)
    return match_scalar_key(key) if found is None else found


def match_scalar_key(key: str) -> ScalarKey | None:
    match = _SCALAR.fullmatch(key) if len(key) <= MAX_KEY_LENGTH else None
    file = None if match is None else match_scalar_file(_CHECKPOINT.sub("", match["name"]))
    return None if match is None or file is None else ScalarKey(root_of(match), match["mark"], file)


def scalar_names(plan: RulePlan) -> ScalarNames:
    """Return the meanings of names; the documented ones where a pattern of the settings cannot be used."""
    parameters = plan.parameters.get(TRAINING_SETTINGS[0])
    return ScalarNames(parameters.replaced() if isinstance(parameters, ScalarNamesParameters) else {})
