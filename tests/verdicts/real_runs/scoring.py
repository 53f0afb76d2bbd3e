"""What the product says about a run, held against what a person sees in it."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.verdicts.real_runs.labels import LONG_S, Label, is_made, statements
from tests.verdicts.real_runs.product import Said
from tests.verdicts.real_runs.recording import origins

# A finding may say to be wasted so much more than a person sees: samples are a minute apart.
MARGIN_PERCENT = 3.0


@dataclass(frozen=True, slots=True)
class Score:
    """One run.

    Attributes
    ----------
    named : bool
        Whether the finding that stands first is one that may.
    false : tuple of str
        What was said and is false, one sentence each.
    """

    label: Label
    said: Said
    named: bool
    false: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Totals:
    """All runs. ``jobs`` counts a job of two runs once, and as named when each of its runs is."""

    wasted_named: int
    wasted: int
    jobs_named: int
    jobs: int
    healthy_fired: int
    healthy: int
    unwanted: int
    false: int


def score(label: Label, said: Said) -> Score:
    """Hold what was said about a run against its label."""
    named = bool(said.fired) and said.fired[0] in label.first
    return Score(label, said, named, (*_false_statements(label, said), *_overstated(label, said)))


def _false_statements(label: Label, said: Said) -> list[str]:
    known = statements()
    healthy = said.level == "healthy"
    made = (known[name] for name in label.must_not)
    return [each.text for each in made if is_made(each, fired=said.fired, texts=said.texts, healthy=healthy)]


def _overstated(label: Label, said: Said) -> list[str]:
    """Name the findings that say to be wasted more than any person sees."""
    most = label.unused_percent + label.waiting_percent + MARGIN_PERCENT
    return [
        f"{finding.rule} says that {finding.wasted_percent:.0f} % are wasted; at most {most:.0f} % are."
        for finding in said.findings
        if finding.wasted_percent is not None and finding.wasted_percent > most
    ]


def totals(scores: Sequence[Score]) -> Totals:
    """Count over all runs."""
    wasted = [each for each in scores if is_to_be_named(each.label)]
    healthy = [each for each in scores if each.label.outcome == "healthy"]
    jobs: dict[frozenset[str], list[bool]] = {}
    for each in wasted:
        jobs.setdefault(_job(each.label.run), []).append(each.named)
    return Totals(
        wasted_named=sum(each.named for each in wasted),
        wasted=len(wasted),
        jobs_named=sum(all(named) for named in jobs.values()),
        jobs=len(jobs),
        healthy_fired=sum(bool(each.said.findings) for each in healthy),
        healthy=len(healthy),
        unwanted=sum(bool(each.said.findings) and each.label.fire == "no" for each in scores),
        false=sum(len(each.false) for each in scores),
    )


def is_to_be_named(label: Label) -> bool:
    """Whether the run is wasted, and lasted long enough for the product to say so."""
    return label.outcome == "wasted" and origins()[label.run].seconds >= LONG_S


def _job(run: str) -> frozenset[str]:
    other = origins()[run].same_job
    return frozenset({run} if other is None else {run, other})
