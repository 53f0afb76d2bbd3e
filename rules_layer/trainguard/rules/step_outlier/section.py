"""StepOutlier: statistics and histograms of steps, the slow ones, and what goes with them."""

from trainguard.core.timestamps import iso_time
from trainguard.core.units import counted
from trainguard.render.blocks import Block, Column, Figure, Figures, Folded, Key, Note, Table, plot_column
from trainguard.render.nodes import first_and_folded, folded_rest, most, nodes_of, pick
from trainguard.render.numbers import count, moment, percent, seconds, shown_name
from trainguard.render.plots import strips
from trainguard.render.plots.charts import duration_chart
from trainguard.render.plots.scale import Scale, up_from_zero
from trainguard.render.rule_entry import RuleEntry, setting
from trainguard.rules.step_outlier.evaluation import SeriesOfSteps, ShownStep, StepDetails, StepEvent, StepStatistics

PREFIX = "Step:ModeKeys."
SERIES_IN_FULL = 16
CHARTS = 8
SLOW_SHOWN = 8
SPREAD = (Key("box", "shortest to 95th percentile"), Key("median", "median"), Key("whisker", "up to the longest"))


def blocks(entry: RuleEntry) -> list[Block]:
    nodes = {node: held for node, held in nodes_of(entry, StepDetails).items() if held.series}
    picked = pick(nodes, worst=entry.worst, badness=_badness)
    series = sorted((each for _, held in picked.full for each in held.series), key=lambda each: not each.fired)
    if not series:
        return []
    shown: list[Block] = [_statistics(series[:SERIES_IN_FULL]), _outliers(series[:SERIES_IN_FULL])]
    if len(series) > SERIES_IN_FULL:
        shown.append(Note(f"{len(series) - SERIES_IN_FULL:,} more series are in report.json."))
    shown.append(Figures([_histogram(each, setting(entry, "stddev")) for each in series[:CHARTS]]))
    slow = [[*_what_goes_with_them(node, held), *_slow_steps(node, held.slow_steps)] for node, held in picked.full]
    shown.extend(first_and_folded("Slow steps", slow))
    rest = [
        (shown_name(node), count(sum(each.steps for each in held.series)), percent(_slowest(held)))
        for node, held in picked.rest
    ]
    heads = [Column("Node"), Column("Steps", "number"), Column("Time in slow steps, at most", "number")]
    return [*shown, *folded_rest("Steps", heads, rest)]


def mode(text: str) -> str:
    return shown_name(text.removeprefix(PREFIX), 40)


def _label(series: SeriesOfSteps) -> str:
    return f"{shown_name(series.process, 40)} {mode(series.mode)}"


def _statistics(series: list[SeriesOfSteps]) -> Table:
    scale = up_from_zero(most([each.step_stats.max for each in series], 1.0) or 1.0)
    columns = [
        Column("Process and mode"),
        plot_column("Duration", scale, " s"),
        *(Column(what, "number") for what in ("Mean", "Std. dev.", "Min", "Median", "p95", "p99", "Max")),
    ]
    rows = []
    for each in series:
        stats = each.step_stats
        quantiles = (stats.min, *(_within(stats, value) for value in (stats.p50, stats.p95, stats.p99)), stats.max)
        said = f"{_label(each)}: median {seconds(quantiles[1])}, longest {seconds(stats.max)}"
        drawn = strips.spread(
            [value or 0.0 for value in quantiles], scale, alt=said, tone="hot" if each.fired else "plain"
        )
        rows.append((_label(each), drawn, *(seconds(value) for value in (stats.mean, each.stddev, *quantiles))))
    return Table("Durations of steps", columns, rows, SPREAD)


def _within(stats: StepStatistics, value: float | None) -> float | None:
    if value is None or stats.min is None or stats.max is None:
        return value
    return min(max(value, stats.min), stats.max)


def _outliers(series: list[SeriesOfSteps]) -> Table:
    columns = [
        Column("Process and mode"),
        *(Column(what, "number") for what in ("Steps", "Outliers", "Plausible by chance", "Time in slow steps")),
    ]
    rows = [
        (
            _label(each),
            count(each.steps),
            count(each.number_of_outliers),
            count(each.plausible_outliers),
            percent(each.slow_share_percent),
        )
        for each in series
    ]
    note = (
        "Outliers took longer than the threshold in the histogram. Time in slow steps: what steps of over twice the "
        "median took beyond it."
    )
    return Table("Outliers", columns, rows, note=note)


def _histogram(series: SeriesOfSteps, deviations: float | None) -> Figure:
    stats = series.step_stats
    lines = [(stats.mean, "mean", "mean")]
    if stats.mean is not None and series.stddev is not None and deviations is not None:
        lines.append((stats.mean + deviations * series.stddev, "threshold", "limit"))
    caption = f"Durations of {count(series.steps)} steps: {_label(series)}"
    said = f"{caption}, median {seconds(_within(stats, stats.p50))}, longest {seconds(stats.max)}"
    return Figure(caption, duration_chart(series.histogram, lines, alt=said, up="steps"))


def _what_goes_with_them(node: str, held: StepDetails) -> list[Block]:
    events = held.framework.events
    if not events:
        return []
    scale = up_from_zero(
        most([value for each in events for value in (each.slow_steps_percent, each.ordinary_steps_percent)], 1.0) or 1.0
    )
    columns = [
        Column("Event"),
        plot_column("Share of the steps' time", scale, " %"),
        *(Column(what, "number") for what in ("Slow steps", "Other steps")),
    ]
    legend = (Key("bar hot", "slow steps"), Key("bar plain", "other steps"))
    rows = [_event(each, scale) for each in events]
    return [Table(f"What runs in slow steps on {shown_name(node)}", columns, rows, legend)]


def _event(event: StepEvent, scale: Scale) -> tuple[str, ...]:
    slow, ordinary = event.slow_steps_percent, event.ordinary_steps_percent
    said = f"{shown_name(event.event)}: {percent(slow)} of slow steps, {percent(ordinary)} of others"
    return shown_name(event.event), strips.pair(slow, ordinary, scale, alt=said), percent(slow), percent(ordinary)


def _slow_steps(node: str, steps: list[ShownStep]) -> list[Block]:
    if not steps:
        return []
    columns = [
        *(Column(what) for what in ("Start (UTC)", "Process", "Mode")),
        *(Column(what, "number") for what in ("Step", "Duration")),
    ]
    longest = sorted(steps, key=lambda step: -step.duration)
    rows = [
        (
            moment(iso_time(step.start)),
            shown_name(step.process, 40),
            mode(step.mode),
            shown_name(step.step, 24),
            seconds(step.duration),
        )
        for step in longest
    ]
    top = Table(f"Longest of the newest slow steps on {shown_name(node)}", columns, rows[:SLOW_SHOWN])
    if len(rows) <= SLOW_SHOWN:
        return [top]
    more = Table(f"More slow steps on {shown_name(node)}", columns, rows[SLOW_SHOWN:])
    return [top, Folded(f"{counted(len(rows) - SLOW_SHOWN, 'more slow step')} of {shown_name(node)}", (more,))]


def _slowest(held: StepDetails) -> float | None:
    return most([each.slow_share_percent for each in held.series])


def _badness(held: StepDetails) -> float:
    return 1_000.0 * any(each.fired for each in held.series) + (_slowest(held) or 0.0)
