"""What names of scalars mean: losses, metrics, learning rates and gradient norms, of training or of evaluation."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from trainguard.formats.tensors.name_patterns import NamePattern, NamePatternError, name_pattern
from trainguard.formats.tensors.step_view import Mode

LOSSES, METRICS, LEARNING_RATE, GRADIENT_NORM = "losses", "metrics", "learning_rate", "gradient_norm"
EVALUATION, IGNORED = "evaluation", "ignored"
EVERY_SCALAR = "all"

_SETS = "train|training|valid|validation|val|eval|test"
_METRICS = (
    "acc|accuracy|auc|auroc|auprc|f1|fbeta|precision|recall|sensitivity|specificity|error|merror|wer|cer|mae|mse|rmse|"
    "mape|r2|ndcg|map|miou|iou|dice|bleu|chrf|rouge[a-z0-9]*|meteor|ppl|perplexity|mcc|kappa|psnr|ssim|fid|score"
)

PATTERNS: Mapping[str, str] = {
    LOSSES: rf"(?i)loss(?!_?scal)|(?:^|[^a-z])(?:nll|xent|cross_?entropy)(?:[^a-z]|$)|^(?:{_SETS})-(?!.*(?:auc|map)$)",
    METRICS: rf"(?i)(?:^|[^a-z])(?:{_METRICS})(?:[^a-z]|$)|^(?:{_SETS})-",
    LEARNING_RATE: r"(?i)(?:^|[^a-z])(?:lr|learning_?rate)(?:[^a-z]|$)",
    GRADIENT_NORM: r"(?i)grad(?:ient)?[a-z0-9_/. -]{0,16}norm",
    EVALUATION: r"(?i)(?:^|[^a-z])(?:val|valid|validation|eval|evaluation|test|dev)(?:[^a-z]|$)",
    IGNORED: (
        r"(?i)(?:^|/)epoch$|^batch_|_vs_iterations$|_runtime$|_per_second$|(?:^|/)total_flos$|^hp_metric$|"
        r"^train/train_loss$"
    ),
}
"""Ignored are positions, speeds, sums over a run, and Keras's values per batch: its steps are epochs."""

_BOOSTING = rf"^(?:{_SETS})-[a-zA-Z0-9@_]+$"
"""XGBoost's ``validation-rmse``: a step has those of all sets and no mode."""

_FOLDER = r"(?i)^(?:val|valid|validation|eval|evaluation)$|_(?:val|valid|validation|eval)$"
"""Folders of evaluation; ``test`` is what people also call a run."""

_MOST_REMEMBERED = 100_000

_PLAIN_FOLDERS = frozenset({"", "train", "training", "val", "valid", "validation", "eval", "evaluation"})


@dataclass(frozen=True)
class ScalarNames:
    """`PATTERNS`, with those in ``replaced``; raises NamePatternError for what cannot be used."""

    replaced: Mapping[str, str] = field(default_factory=dict)
    _modes: dict[tuple[str, str], Mode | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        unknown = sorted(self.replaced.keys() - PATTERNS.keys())
        if unknown:
            raise NamePatternError(f"{unknown[0]!r} is no meaning of a name, expected one of {', '.join(PATTERNS)}")
        for meaning, text in self.replaced.items():
            try:
                name_pattern(text)
            except NamePatternError as fault:
                raise NamePatternError(f"{meaning} is {text!r}: {fault}") from fault

    def mode(self, name: str, folder: str = "") -> Mode | None:
        """Return the mode of a scalar, from its name and that of the folder of its file; None of one to be ignored."""
        key = (name, folder)
        if key not in self._modes:
            if len(self._modes) >= _MOST_REMEMBERED:
                self._modes.clear()
            self._modes[key] = self._mode(name, folder)
        return self._modes[key]

    def _mode(self, name: str, folder: str) -> Mode | None:
        if _found(self._patterns[IGNORED], name):
            return None
        if _found(_BOOSTING_NAME, name):
            return Mode.GLOBAL
        last = folder.rstrip("/").rpartition("/")[2]
        if _found(self._patterns[EVALUATION], name) or _found(_EVALUATION_FOLDER, last):
            return Mode.EVAL
        return Mode.TRAIN

    def members(self, meaning: str, names: Iterable[str]) -> frozenset[str]:
        """Return those of some names that have a meaning; all of them for ``all``, none for one that is unknown."""
        if meaning == EVERY_SCALAR:
            return frozenset(names)
        pattern = self._patterns.get(meaning)
        return frozenset() if pattern is None else frozenset(name for name in names if _found(pattern, name))

    @cached_property
    def _patterns(self) -> dict[str, NamePattern]:
        return {meaning: name_pattern(text) for meaning, text in {**PATTERNS, **self.replaced}.items()}


def scalar_name(tag: str, folder: str = "") -> str:
    """Return the name of a scalar: its tag, after the folder of its file where that says more than a mode."""
    return tag if folder.rstrip("/") in _PLAIN_FOLDERS else f"{folder.rstrip('/')}/{tag}"


_BOOSTING_NAME = name_pattern(_BOOSTING)
_EVALUATION_FOLDER = name_pattern(_FOLDER)


def _found(pattern: NamePattern, name: str) -> bool:
    """Return False for a name so long that the search could take too long."""
    try:
        return pattern.matches(name)
    except NamePatternError:
        return False


SourceKind = Literal["events", "trainer_state", "csv"]

_KINDS: tuple[tuple[SourceKind, re.Pattern[str]], ...] = (
    ("events", re.compile(r"(?P<folder>(?:[^/]+/)*)[^/]*tfevents[^/]*")),
    ("trainer_state", re.compile(r"(?P<folder>(?:[^/]+/)*)trainer_state\.json")),
    (
        "csv",
        re.compile(
            r"(?P<folder>(?:[^/]+/)*)(?:[^/]*(?:metrics|log|history|training|scalars|progress)[^/]*\.(?:csv|tsv|jsonl)|"
            r"(?:results|summary)\.csv|(?:learn|test)_error\.tsv|(?:train|training|history|metrics)\.log)",
            re.IGNORECASE,
        ),
    ),
)
_DEBUG_OUTPUT = "debug-output"


@dataclass(frozen=True, slots=True)
class ScalarFile:
    """A file of scalars: ``folder`` is where it lies, below the place that is looked at, without a last slash."""

    name: str
    kind: SourceKind
    folder: str

    @property
    def source(self) -> str:
        """What its steps follow those of: the other event files of its folder, else the file alone."""
        return self.folder if self.kind == "events" else self.name


def match_scalar_file(name: str) -> ScalarFile | None:
    """Return which file of scalars a name is; None of any other, and of the event files of debug-output."""
    if _DEBUG_OUTPUT in name.split("/"):
        return None
    for kind, pattern in _KINDS:
        if match := pattern.fullmatch(name):
            return ScalarFile(name, kind, match["folder"].rstrip("/"))
    return None
