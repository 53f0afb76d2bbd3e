"""Names as people type them: in any case, shortened, or nearly right."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from trainguard.errors import UnknownJobError, UnknownNameError
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import RULE_NAMES
from trainguard.rules.units import counted
from trainguard.stores import Jobs

ALL_RULE_NAMES = (*RULE_NAMES, PROFILER_REPORT)
OWN_RULES = "Name a custom rule's package with --rules-package DIR, or --rule MODULE:CLASS."
"""What to say where somebody's setting names a rule that is none of TrainGuard's."""

_SUGGESTIONS = 3
_ALIKE = 0.5


def rule_named(word: str, others: Iterable[str] = ()) -> str:
    """Return the rule that a word stands for: its name in any case, or a beginning that only one rule has.

    ``others`` are names of rules beside those that are known here.

    Raises
    ------
    UnknownNameError
        With the rules that the word may stand for.
    """
    lower = word.strip().lower()
    known = tuple(dict.fromkeys((*ALL_RULE_NAMES, *others)))
    by_lower = {name.lower(): name for name in known}
    begun = [name for key, name in by_lower.items() if lower and key.startswith(lower)]
    if lower in by_lower:
        return by_lower[lower]
    if len(begun) == 1:
        return begun[0]
    perhaps = begun or similar(word, known)
    raise UnknownNameError(
        "rule", word, "TrainGuard" if perhaps else f"TrainGuard, which has {', '.join(known)}", perhaps
    )


def similar(word: str, names: Iterable[str]) -> Sequence[str]:
    """Return the names nearest to ``word``: alike ones first, then such as hold it."""
    by_lower = {name.lower(): name for name in names}
    lower = word.strip().lower()
    alike = get_close_matches(lower, by_lower, n=_SUGGESTIONS, cutoff=_ALIKE)
    holding = sorted(key for key in by_lower if lower and lower in key)
    return [by_lower[key] for key in dict.fromkeys([*alike, *holding])][:_SUGGESTIONS]


def unknown_job(job: str, jobs: Jobs) -> UnknownNameError | UnknownJobError:
    """Return the error of a job that is not there, with the nearest names that are."""
    names = [record.job for record in jobs.all()]
    if not names:
        return UnknownJobError(job)
    return UnknownNameError("job", job, f"the table of {counted(len(names), 'job')}", similar(job, names))
