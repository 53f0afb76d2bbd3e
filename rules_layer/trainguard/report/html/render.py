"""``report.html`` of a report."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from trainguard.core.timestamps import epoch_of
from trainguard.core.units import faults_counted, show_share
from trainguard.engine.streams.session import HARMLESS_COUNTERS
from trainguard.kernels.rules.registry import words_of
from trainguard.ledger.bucket import BUCKET_WORDS, Bucket
from trainguard.ledger.document import LedgerEntry
from trainguard.planning.text import said_finish
from trainguard.render.numbers import NOTHING, count, duration, money, share, shown_name
from trainguard.render.plots.strips import parts_of_whole
from trainguard.report.comparison import change_words
from trainguard.report.document import JobSummary, Report, Span
from trainguard.report.evaluated_job import NodeCoverage
from trainguard.report.html.episodes import episodes_of, picture_of
from trainguard.report.html.page import Badge, KeyFigure, joined_script, read_asset, render_page
from trainguard.report.html.rule_sections import shown_rules
from trainguard.report.html.timelines import thresholds_of, timelines_context
from trainguard.report.html.training.charts import compared_losses
from trainguard.report.html.training.sections import training_context

LEVELS: Mapping[str, Badge] = {
    "healthy": ("Healthy", "ok"),
    "attention": ("Needs attention", "warn"),
    "unhealthy": ("Unhealthy", "bad"),
    "unknown": ("Not known yet", "idle"),
}

PHASES = (
    ("initialization", "initialization", "s2"),
    ("training_loop", "training loop", "s1"),
    ("finalization", "finalization", "s3"),
)
COVERAGE_AT_MOST = 600
_GAPS = "gaps"


def _figures(report: Report) -> list[KeyFigure]:
    verdict, job, cost = report.verdict, report.job, report.cost
    paid = cost.note if cost.spent is None else "of all nodes"
    figures = [("Cost so far" if not report.final else "Cost", money(cost.spent, cost.currency), paid)]
    lost = money(verdict.lost, cost.currency)
    wasted = "of the paid time" if verdict.lost is None else f"{lost} of the paid time"
    figures.append(("Wasted", share(verdict.wasted_share), wasted))
    nodes = "" if job.instance_count is None else f"{count(job.instance_count)} \N{MULTIPLICATION SIGN} "
    if job.gpus or report.training is None:
        kind = f"{nodes}{shown_name(job.instance_type or 'instance type unknown')}"
        figures.append(("GPUs", count(job.gpus), kind))
    else:
        figures.append(("Saved steps", count(report.training.steps), "of the training"))
    judged = "so far" if not report.final else f"{count(job.steps)} steps" if job.steps else "from start to end"
    figures.append(("Duration", duration(job.duration_s), judged))
    return [each for each in figures if each[1] != NOTHING or each[0].startswith("Cost")]


def phases_of(job: JobSummary) -> list[tuple[str, Span, str]]:
    return [(title, span, tone) for field, title, tone in PHASES if (span := getattr(job, field)) is not None]


def phase_bar(phases: Sequence[tuple[str, Span, str]]) -> Markup | None:
    """Draw the parts of a job's time as one bar; None where they have no length."""
    total = sum(span.duration_s for _, span, _ in phases)
    if not total:
        return None
    parts = [(title, span.duration_s / total, tone) for title, span, tone in phases]
    alt = ", ".join(f"{title} {duration(span.duration_s)}" for title, span, _ in phases)
    return parts_of_whole(parts, alt=f"The job's time: {alt}")


def unused(entry: NodeCoverage) -> str:
    """Say what of a stream was not used, the most frequent fault first."""
    faults = {name: held for name, held in entry.counters.items() if held and name not in {_GAPS, *HARMLESS_COUNTERS}}
    ranked = sorted(faults.items(), key=lambda item: -item[1])
    return ", ".join(shown_name(faults_counted(held, name)) for name, held in ranked) or "none"


LEAST_SHARE = 0.0005

# Other buckets share one colour.
TONES = {
    Bucket.COMPUTE: "s1",
    Bucket.HOST: "s2",
    Bucket.DATA: "s3",
    Bucket.COMMUNICATION: "s4",
    Bucket.PEERS: "s4",
    Bucket.CHECKPOINT: "s5",
    Bucket.EVALUATION: "s5",
    Bucket.START_UP: "s6",
    Bucket.TAIL: "s6",
    Bucket.RESTART: "s6",
    Bucket.IDLE: "s7",
    Bucket.HANG: "s7",
    Bucket.BROKEN: "s7",
}


def drawn(ledger: Sequence[LedgerEntry]) -> list[LedgerEntry]:
    return [entry for entry in ledger if entry.share >= LEAST_SHARE]


def ledger_bar(ledger: Sequence[LedgerEntry], what: str) -> Markup:
    parts = [(BUCKET_WORDS[entry.bucket], entry.share, TONES.get(entry.bucket, "")) for entry in drawn(ledger)]
    alt = ", ".join(f"{title} {show_share(share)}" for title, share, _ in parts)
    return parts_of_whole(parts, alt=f"{what}: {alt}")


def render_report(report: Report) -> str:
    """Return the page of a report; its texts may hold anything, they are shown, not run."""
    rules = shown_rules(report)
    episodes = episodes_of(report)
    timelines = report_timelines(report)
    # The loss is seen first where training is what fails, and where nothing else shows the job's course.
    loss_first = timelines is None or (report.training is not None and bool(report.training.fires))
    trained = report.training is not None and report.training.steps > 0
    of_panels = trained or report.kernels is not None or report.comparison is not None
    word, tone = LEVELS.get(report.verdict.level, LEVELS["unknown"])
    statuses = Counter(line["status"][0] for line in rules).most_common()
    styles = ("" if timelines is None else timelines["styles"]) + (read_asset("training.css") if of_panels else "")
    return render_page(
        "report.html.j2",
        styles=styles,
        script=joined_script() if timelines is None else timelines["scripts"],
        report=report,
        level=(word.removesuffix(" yet") if report.final else word, tone),
        figures=_figures(report),
        finish=None if report.finish is None else said_finish(report.finish),
        rules=rules,
        counts=f"{len(rules)} rules: {', '.join(f'{amount} {word}' for word, amount in statuses)}.",
        anchors={line["entry"].rule: line["anchor"] for line in rules},
        phases=phases_of(report.job),
        phase_bar=phase_bar,
        # Streams with a fault first, then those of which least was used.
        coverage=sorted(
            report.coverage, key=lambda each: (each.last_fault is None, 1.0 if each.share is None else each.share)
        )[:COVERAGE_AT_MOST],
        picture=picture_of(report, episodes),
        ledger=drawn(report.ledger),
        ledger_bar=ledger_bar,
        tones=TONES,
        bucket_words=BUCKET_WORDS,
        unused=unused,
        episodes=episodes,
        sections=[each for each in rules if each["has_section"]],
        timelines=timelines,
        words_of=words_of,
        compared_losses=compared_losses,
        change_words=change_words,
        **training_context(report.training, loss_first=loss_first),
    )


def report_timelines(report: Report) -> dict[str, Any] | None:
    if report.timelines is None:
        return None
    started_at = report.job.started_at
    episodes = [each for held in episodes_of(report).values() for each in held]
    return timelines_context(
        report.timelines,
        started_at=None if started_at is None else epoch_of(started_at),
        episodes=sorted(episodes, key=lambda each: each["start"]),
        thresholds=thresholds_of(report.rules, [finding.rule for finding in report.findings]),
    )
