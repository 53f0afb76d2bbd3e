"""Names as people type them: in any case, shortened, or nearly right."""

from collections.abc import Iterable, Mapping, Sequence

from trainguard.core.errors import UnknownJobError, UnknownNameError
from trainguard.core.records import JobRecord
from trainguard.core.stores import Jobs
from trainguard.core.units import SUGGESTIONS, counted, similar
from trainguard.pricing.table import PriceTable, packaged_prices
from trainguard.rules.family_rules import OTHER_FAMILIES, bare
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import RULE_NAMES, TITLE

ALL_RULE_NAMES = (*RULE_NAMES, PROFILER_REPORT)

EVERY_RULE: tuple[str, ...] = (*ALL_RULE_NAMES, *(rule for family in OTHER_FAMILIES for rule in family.names))

# Advice where a setting names a rule that is none of TrainGuard's.
OWN_RULES = "Name a custom rule's package with --rules-package DIR, or --rule MODULE:CLASS."

_LISTED = "TrainGuard; `trainguard params` lists the rules of all families: " + ", ".join(
    (TITLE, *(family.title for family in OTHER_FAMILIES))
)


def rule_named(word: str, others: Iterable[str] = ()) -> str:
    """Return the rule that a word stands for: its name in any case, or a beginning that only one rule has.

    Names are of `EVERY_RULE` and ``others``, with or without the family; a beginning that is shared is the profiler
    rule's. Raises UnknownNameError with the rules that the word may stand for.
    """
    lower = word.strip().lower()
    known = tuple(dict.fromkeys((*EVERY_RULE, *others)))
    spelled = {spelling.lower(): name for name in reversed(known) for spelling in (bare(name), name)}
    if lower in spelled:
        return spelled[lower]
    begun = [name for name in known if lower and (name if "/" in lower else bare(name)).lower().startswith(lower)]
    of_profiler = [name for name in begun if "/" not in name]
    for only in (begun, of_profiler):
        if len(only) == 1:
            return only[0]
    perhaps = begun or _near(bare(lower), {key: name for key, name in spelled.items() if "/" not in key})
    raise UnknownNameError("rule", word, "TrainGuard" if perhaps else _LISTED, perhaps)


def _near(word: str, rules: Mapping[str, str]) -> Sequence[str]:
    """Return the rules nearest to a word: such as hold it first, then alike ones; ``rules`` are by bare name."""
    holding = sorted(key for key in rules if word and word in key)
    return [rules[key] for key in dict.fromkeys([*holding, *similar(word, rules)])][:SUGGESTIONS]


def unpriced(instance_type: str | None, table: PriceTable | None) -> list[str]:
    """Return a note, with the nearest type, where the table has no price of an instance type that a person gave."""
    known = table or packaged_prices()
    if instance_type is None or known.hourly(instance_type) is not None:
        return []
    near = similar(instance_type, (name for name, row in known.instances.items() if row.per_hour is not None))
    perhaps = f" Perhaps you mean {near[0]}." if near else ""
    return [f"No price of {instance_type} is known, so findings have no cost.{perhaps}"]


def known_job(jobs: Jobs, name: str) -> JobRecord:
    record = jobs.load(name)
    if record is None:
        raise unknown_job(name, jobs)
    return record


def unknown_job(job: str, jobs: Jobs) -> UnknownNameError | UnknownJobError:
    """Return the error of a job that is not there, with the nearest names that are."""
    names = [record.job for record in jobs.all()]
    if not names:
        return UnknownJobError(job)
    return UnknownNameError("job", job, f"the table of {counted(len(names), 'job')}", similar(job, names))
