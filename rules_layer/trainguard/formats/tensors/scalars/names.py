"""What names of scalars mean: losses, scores and errors, learning rates, gradient norms, of training or evaluation."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Literal

from trainguard.formats.tensors.name_patterns import NamePattern, NamePatternError, name_pattern
from trainguard.formats.tensors.scalars.objective import Signal, signal_of
from trainguard.formats.tensors.step_view import Mode

LOSSES, METRICS, ERRORS = "losses", "metrics", "errors"
LEARNING_RATE, GRADIENT_NORM = "learning_rate", "gradient_norm"
EVALUATION, IGNORED = "evaluation", "ignored"
EVERY_SCALAR = "all"

# fmt: off
_SCORES = frozenset((
    "acc", "accuracy", "accuracies", "top 1", "top 3", "top 5", "top 10", "rank 1", "auc", "aucpr", "auroc",
    "auprc", "rocauc", "prauc", "ap", "map", "average precision", "f 1", "f 2", "fbeta", "prec", "precision", "recall",
    "sensitivity", "specificity", "r 2", "explained variance", "ndcg", "dcg", "mrr", "hit rate", "hit ratio", "pfound",
    "miou", "iou", "io u", "dice", "jaccard", "bleu", "sacrebleu", "chrf", "rouge", "rougel", "rougelsum", "meteor",
    "cider", "spice", "mcc", "kappa", "gini", "psnr", "ssim", "snr", "si sdr", "spearman", "spearmanr", "pearson",
    "pearsonr", "correlation", "exact match", "success rate", "win rate", "margins", "score", "bertscore", "c index",
    "yeti rank", "ams", "corrcoef",
))
# Phrases of words and numbers, which are read apart: ``mAP50`` is ``map 50``, ``top1`` is ``top 1``.
_ERRORS = frozenset((
    "error", "errors", "err", "merror", "wer", "cer", "mer", "wil", "ter", "eer", "mae", "mse", "msle", "rmse", "rmsle",
    "nrmse", "mape", "smape", "mphe", "mpe", "deviance", "ppl", "perplexity", "bpb", "bpc", "bits per byte",
    "bits per char", "bits per dim", "fid", "kid", "fvd", "lpips", "ece", "brier", "hamming", "regret", "hausdorff",
    "chamfer", "nloglik", "kullback leibler",
))

# Errors by the names of LightGBM, CatBoost and XGBoost, which say nothing without the name of a set before them.
_BOOSTED = frozenset((
    "l 1", "l 2", "quantile", "huber", "fair", "poisson", "gamma", "tweedie", "expectile", "cross entropy lambda",
    "kldiv", "lq", "log cosh", "multi class", "multi class one vs all", "pair logit", "query soft max",
    "query cross entropy", "cox",
))
# fmt: on

_LONGEST_PHRASE = 4
_SET_BEFORE = re.compile(
    r"(?i)(?:train|training|valid|validation|val|eval|test|learn|cv)[0-9_]*(?:'s |[-_/ ])(?P<metric>[^:;@]+)[:;@]?.*"
)

# Ignored are positions, speeds, sums over a run, the same scalars by other positions, and Keras's values per batch.
PATTERNS: Mapping[str, str] = {
    LOSSES: (
        r"(?i)loss(?!(?:es)?(?:[ _/-]?(?:scal|weight|coef|ratio|std|time|count)|less))|"
        r"(?:^|[^a-z])(?:nll|xent|cross_?entropy|n?elbo)(?:[^a-z]|$)"
    ),
    LEARNING_RATE: r"(?i)(?:^|[^a-z])(?:lr|learning[ _-]?rate)(?:[^a-z]|$)",
    GRADIENT_NORM: r"(?i)grad(?:ient)?[a-z0-9_/. -]{0,16}norm",
    EVALUATION: r"(?i)(?:^|[^a-z])(?:val|valid|validation|eval|evaluation|test|dev)(?:[^a-z]|$)",
    IGNORED: (
        r"(?i)(?:^|/)epoch$|^batch_|_vs_iterations$| vs (?:samples|tokens)$|_runtime$|_per_second$|"
        r"(?:^|/)total_flos$|^hp_metric$|^train/train_loss$"
    ),
}

MEANINGS = (LOSSES, METRICS, ERRORS, LEARNING_RATE, GRADIENT_NORM, EVALUATION, IGNORED)

# XGBoost's ``validation-rmse``: a step has those of all sets and no mode.
_BOOSTING = r"^(?:train|training|valid|validation|val|eval|test)-[a-zA-Z0-9@_.-]+$"

_SPREAD = r"(?i)(?:^|[^a-z])(?:std|stdv|stddev|stderr|var)$|^std_"
# Scorers of scikit-learn: an error or loss of which more is better.
_NEGATED = r"(?i)(?:^|[^a-z])neg_(?:log_loss|(?:mean|root|median|max|brier|negative)_)"

_OF_FOLDER = (
    r"(?i)(?:^|[^a-z])(?:values?|alpha|variance|norm|lr|learning_?rate|temperature|time|steps?|count)(?:[^a-z]|$)"
)
_WORD_OR_NUMBER = re.compile(r"[a-z]+|[0-9]+")
_LONGEST_NAME = 500
_BORDER = re.compile(r"(?<=[a-z])(?=[A-Z])")
_NO_LOSSES = frozenset(
    {Signal.KL, Signal.ENTROPY, Signal.CLIPPED, Signal.ADVANTAGE, Signal.REWARD, Signal.VALUE_FIT, Signal.EPISODE}
)

# Folders of evaluation; ``test`` is what people also call a run.
_FOLDER = r"(?i)^(?:val|valid|validation|eval|evaluation)$|_(?:val|valid|validation|eval)$"

_MOST_REMEMBERED = 100_000
# Most steps of a run have the same names.
_MOST_STEPS_REMEMBERED = 32

_PLAIN_FOLDERS = frozenset({"", "train", "training", "val", "valid", "validation", "eval", "evaluation"})


@dataclass(frozen=True)
class ScalarNames:
    """`PATTERNS`, with those in ``replaced``; raises NamePatternError for what cannot be used."""

    replaced: Mapping[str, str] = field(default_factory=dict)
    _modes: dict[tuple[str, str], Mode | None] = field(default_factory=dict, init=False, repr=False, compare=False)
    _members: dict[tuple[str, tuple[str, ...]], frozenset[str]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        unknown = sorted(self.replaced.keys() - set(MEANINGS))
        if unknown:
            raise NamePatternError(f"{unknown[0]!r} is no meaning of a name, expected one of {', '.join(MEANINGS)}")
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
        if self.means(IGNORED, name):
            return None
        if _found(_BOOSTING_NAME, name):
            return Mode.GLOBAL
        last = folder.rstrip("/").rpartition("/")[2]
        if self.means(EVALUATION, name) or _found(_EVALUATION_FOLDER, last):
            return Mode.EVAL
        return Mode.TRAIN

    def members(self, meaning: str, names: Iterable[str]) -> frozenset[str]:
        """Return those of some names that have a meaning; all of them for ``all``, none for one that is unknown."""
        if meaning == EVERY_SCALAR:
            return frozenset(names)
        if meaning not in MEANINGS:
            return frozenset()
        key = (meaning, tuple(names))
        if key not in self._members:
            if len(self._members) >= _MOST_STEPS_REMEMBERED:
                self._members.clear()
            self._members[key] = frozenset(name for name in key[1] if self.means(meaning, name))
        return self._members[key]

    def means(self, meaning: str, name: str) -> bool:
        """Whether a name has a meaning; the ``errors`` are metrics, but for losses that a setting names."""
        own = self._replaced.get(meaning)
        if own is not None:
            return _found(own, name)
        name = name[-_LONGEST_NAME:]
        if meaning == METRICS:
            return has_meaning(METRICS, name) or self.means(ERRORS, name)
        if meaning == ERRORS and LOSSES in self._replaced:
            return has_meaning(ERRORS, name) and not self.means(LOSSES, name)
        return has_meaning(meaning, name)

    @cached_property
    def _replaced(self) -> dict[str, NamePattern]:
        return {meaning: name_pattern(text) for meaning, text in self.replaced.items()}


@lru_cache(maxsize=8_192)
def has_meaning(meaning: str, name: str) -> bool:
    """Whether a name has the documented meaning; ``MultiClassAccuracy`` is read as ``Multi_Class_Accuracy`` too."""
    if meaning in (LOSSES, METRICS, ERRORS) and _found(_SPREAD_NAME, _apart(name)):
        return False
    if meaning == METRICS:
        return is_score(name) or _is_error(name) or (_is_boosting(name) and not _says_loss(name))
    if meaning == ERRORS:
        return _is_error(name)
    found = _found(_DOCUMENTED[meaning], name) or _found(_DOCUMENTED[meaning], _apart(name))
    if meaning != LOSSES or _is_negated(name):
        return found and meaning != LOSSES
    return (found and not _is_beside(_apart(name))) or (_is_boosting(name) and not is_score(name))


def is_score(name: str) -> bool:
    """Whether more is better of what a name measures, by the documented meanings."""
    of_set = _SET_BEFORE.fullmatch(name)
    ranked = of_set is not None and of_set["metric"].lower() == "pre"
    is_one = ranked or not _SCORES.isdisjoint(_phrases(name))
    return _is_negated(name) or (is_one and not _is_error(name))


def _is_error(name: str) -> bool:
    if _says_loss(name) or _is_negated(name):
        return False
    of_set = _SET_BEFORE.fullmatch(_apart(name))
    is_boosted = of_set is not None and " ".join(_words(of_set["metric"])) in _BOOSTED
    return is_boosted or not _ERRORS.isdisjoint(_phrases(name))


def _is_negated(name: str) -> bool:
    return _found(_NEGATED_NAME, _apart(name))


def _apart(name: str) -> str:
    return _BORDER.sub("_", name)


def _phrases(name: str) -> set[str]:
    """Return up to four words and numbers in a row, in lower case, of a name and of its words in camel case."""
    return {
        " ".join(words[start : start + count])
        for words in (_words(name), _words(_apart(name)))
        for start in range(len(words))
        for count in range(1, _LONGEST_PHRASE + 1)
    }


def _words(name: str) -> list[str]:
    return _WORD_OR_NUMBER.findall(name[-_LONGEST_NAME:].lower())


def _is_boosting(name: str) -> bool:
    return _found(_BOOSTING_NAME, name)


def _says_loss(name: str) -> bool:
    """Whether the last part of a name says that it is a loss, and names no error after it, as in ``loss ppl``."""
    _, says, rest = name.rpartition("/")[2].lower().rpartition("loss")
    return bool(says) and _ERRORS.isdisjoint(_phrases(rest))


def _is_beside(name: str) -> bool:
    """Whether a name of a folder of losses says that it is none: ``losses/clipfrac``, ``Loss/learning_rate``."""
    folder, _, last = name.rpartition("/")
    if not folder or _found(_DOCUMENTED[LOSSES], last):
        return False
    return signal_of(last) in _NO_LOSSES or _found(_BESIDE_NAME, last)


def scalar_name(tag: str, folder: str = "") -> str:
    """Return the name of a scalar: its tag, after the folder of its file where that says more than a mode."""
    return tag if folder.rstrip("/") in _PLAIN_FOLDERS else f"{folder.rstrip('/')}/{tag}"


_DOCUMENTED = {meaning: name_pattern(text) for meaning, text in PATTERNS.items()}
_BOOSTING_NAME = name_pattern(_BOOSTING)
_SPREAD_NAME, _NEGATED_NAME, _BESIDE_NAME = (name_pattern(text) for text in (_SPREAD, _NEGATED, _OF_FOLDER))
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
            r"(?:results|summary)\.csv|(?:train|training|history|metrics)\.log)",
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
