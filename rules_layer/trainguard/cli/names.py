"""Names as people type them: in any case, shortened, or nearly right."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from trainguard.errors import UnknownJobError, UnknownNameError
from trainguard.ports import Jobs
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import RULE_NAMES

ALL_RULE_NAMES = (*RULE_NAMES, PROFILER_REPORT)
_SUGGESTIONS = 3
_ALIKE = 0.5


def rule_named(word: str) -> str:
    """Return the rule that a word stands for: its name in any case, or a beginning that only one rule has.

    Raises
    ------
    UnknownNameError
        With the rules that the word may stand for.
    """
    lower = word.strip().lower()
    by_lower = {name.lower(): name for name in ALL_RULE_NAMES}
    begun = [name for key, name in by_lower.items() if lower and key.startswith(lower)]
    if lower in by_lower:
        return by_lower[lower]
    if len(begun) == 1:
        return begun[0]
    raise UnknownNameError("rule", word, "TrainGuard", begun or similar(word, ALL_RULE_NAMES) or ALL_RULE_NAMES)


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
    return UnknownNameError("job", job, f"the table of {len(names):,} jobs", similar(job, names))
