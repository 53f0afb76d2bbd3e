"""Two runs beside each other."""

import statistics
from collections.abc import Iterator, Mapping

from trainguard.core.units import show_percentage_points
from trainguard.ledger.bucket import BUCKET_WORDS
from trainguard.render import numbers
from trainguard.report.document import Change, Comparison, Report, Unit
from trainguard.report.timeline.series import Timelines
from trainguard.report.training.digest import ScalarSeries

LEAST_SHARE = 0.0005


def compared(report: Report, other: Report) -> Comparison:
    here, there = ({each.rule for each in every.findings} for every in (report, other))
    return Comparison(
        job=other.job.name,
        level=other.verdict.level,
        totals=list(_totals(report, other)),
        ledger=list(_ledger(report, other)),
        steps=list(_steps(report, other)),
        loss=list(_loss(losses(report), losses(other))),
        found_here=sorted(here - there),
        found_there=sorted(there - here),
        losses=list(losses(other).values()),
    )


def losses(report: Report) -> Mapping[str, ScalarSeries]:
    """Return the losses of a report by what they are called: ``loss``, ``loss (eval)``."""
    held = [] if report.training is None else report.training.series
    named = {f"{each.name} ({each.mode.lower()})" if each.mode != "GLOBAL" else each.name: each for each in held}
    return {name: each for name, each in named.items() if each.kind == "loss"}


def _totals(report: Report, other: Report) -> Iterator[Change]:
    yield from _change("cost", "money", report.cost.spent, other.cost.spent)
    yield from _change("duration", "seconds", report.job.duration_s, other.job.duration_s)
    yield from _change("wasted of the paid time", "share", report.verdict.wasted_share, other.verdict.wasted_share)


def _ledger(report: Report, other: Report) -> Iterator[Change]:
    here, there = ({each.bucket: each.share for each in every.ledger} for every in (report, other))
    if not here or not there:
        return
    shares = {bucket: (here.get(bucket, 0.0), there.get(bucket, 0.0)) for bucket in BUCKET_WORDS}
    for bucket, (own, others) in sorted(shares.items(), key=lambda item: -abs(item[1][0] - item[1][1])):
        if max(own, others) >= LEAST_SHARE:
            yield Change(what=BUCKET_WORDS[bucket], unit="share", here=own, there=others)


def _steps(report: Report, other: Report) -> Iterator[Change]:
    yield from _change("steps", "number", report.job.steps, other.job.steps)
    here, there = typical_steps(report.timelines), typical_steps(other.timelines)
    for mode in dict.fromkeys([*here, *there]):
        yield from _change(f"typical {mode} step", "seconds", here.get(mode), there.get(mode))


def typical_steps(timelines: Timelines | None) -> dict[str, float]:
    """Return the median step of each mode, seconds, over time and processes."""
    held: dict[str, list[float]] = {}
    for each in [] if timelines is None else timelines.steps:
        mode = each.mode.removeprefix("Step:").removeprefix("ModeKeys.").lower()
        held.setdefault(mode, []).extend(value for value in each.mean_s if value is not None)
    return {mode: statistics.median(values) for mode, values in held.items() if values}


def _loss(here: Mapping[str, ScalarSeries], there: Mapping[str, ScalarSeries]) -> Iterator[Change]:
    for name in dict.fromkeys([*here, *there]):
        held = [() if name not in each else each[name].mean for each in (here, there)]
        own, others = ([value for value in values if value is not None] for values in held)
        yield from _change(f"{name}, at the end", "number", *(each[-1] if each else None for each in (own, others)))
        yield from _change(f"{name}, lowest", "number", min(own, default=None), min(others, default=None))


def _change(what: str, unit: Unit, here: float | None, there: float | None) -> Iterator[Change]:
    if here is not None or there is not None:
        yield Change(what=what, unit=unit, here=here, there=there)


def change_words(change: Change, currency: str | None) -> tuple[str, str, str]:
    """Write both values of a change, and how much more or less the first one is."""
    write = {"share": numbers.share, "seconds": numbers.seconds, "number": numbers.number}.get(change.unit)
    here, there = (
        numbers.money(value, currency) if write is None else write(value) for value in (change.here, change.there)
    )
    return here, there, _difference(change)


def _difference(change: Change) -> str:
    if change.here is None or change.there is None:
        return numbers.NOTHING
    by = change.here - change.there
    sign = "+" if by > 0.0 else "\N{MINUS SIGN}" if by < 0.0 else ""
    if change.unit == "share":
        return f"{sign}{show_percentage_points(100.0 * abs(by))}"
    return f"{sign}{numbers.share(abs(by / change.there))}" if change.there else numbers.NOTHING
