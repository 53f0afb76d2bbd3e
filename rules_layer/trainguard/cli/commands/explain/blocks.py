"""A rule's state on a job as a person reads it."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from trainguard.aws.dynamodb.stored_form import shown_times, shown_value
from trainguard.cli.commands.explain.explanation import Patience, RuleExplanation
from trainguard.cli.output.rendering import (
    Block,
    Cell,
    Line,
    Shown,
    TerminalColumn,
    TerminalFacts,
    heading,
    severity_cell,
    status_cell,
    table,
)
from trainguard.cli.output.rows import measured_as, time_text, with_unit
from trainguard.cli.services.effective_parameters import EffectiveParameter, value_text
from trainguard.cli.services.job_list import NODES_SHOWN, configuration_blocks, stop_text
from trainguard.core.finding import Fact, clock_times
from trainguard.core.job_policy import AlertPolicy
from trainguard.core.records import RuleRow, unit_title
from trainguard.core.units import counted, show_duration, show_percent

FOREIGN = (
    "{} is no rule of TrainGuard's: --rules-package, with the package that was deployed, says when it fires and what "
    "its parameters default to."
)


def explanation_blocks(why: RuleExplanation, *, now: float) -> list[Block]:
    row, known, of_job = why.row, why.known, why.of_job
    on = f", node {unit_title(row.node)}" if row.node is not None else ""
    fires_when = "" if why.fires_when.startswith("never") else f"It fires when {why.fires_when}."
    texts = (_sentence(row.finding.reason), fires_when, _held_back(row.rule, known.policy.alerts))
    blocks: list[Block] = [heading(f"{row.rule} on {why.job}{on}"), TerminalFacts(_facts(why, now)), heading("Why")]
    blocks += [Line(text, indent=2) for text in texts if text]
    if row.finding.facts:
        blocks += [heading("Facts"), table(row.finding.facts, _FACTS)]
    if why.nodes:
        blocks += _nodes(why.nodes, now)
    blocks += _section("When it held", _episodes(row))
    if of_job is not None:
        stop = stop_text(of_job, of_job.fire_id, now)
        blocks += _section("What was done", [*_fire_done(of_job, now), *([stop] if stop else [])])
        if of_job.fire_id is not None and of_job.report_uri is not None:
            blocks.append(Line(f"  {of_job.report_uri}", whole=True))
    blocks += configuration_blocks(known, row.rule)
    blocks += _section("What to do", [row.finding.advice] if row.finding.advice else [])
    blocks += _section("What comes", why.outlook)
    return [*blocks, heading("Parameters"), table(why.parameters, _PARAMETERS)]


_FACTS: Mapping[TerminalColumn, Callable[[Fact], Shown]] = {
    TerminalColumn("fact"): lambda fact: fact.name,
    TerminalColumn("value", right=True): lambda fact: shown_value(fact.value, fact.unit),
    TerminalColumn("threshold", right=True, drops=3): lambda fact: (
        "" if fact.threshold is None else shown_value(fact.threshold, fact.unit)
    ),
    TerminalColumn("series", drops=1): lambda fact: fact.series or "",
    TerminalColumn("where", folds=True, drops=4): lambda fact: "/".join(
        each for each in (fact.node, fact.device) if each
    ),
    TerminalColumn("when", folds=True, drops=2): shown_times,
}

_PARAMETERS: Mapping[TerminalColumn, Callable[[EffectiveParameter], Shown]] = {
    TerminalColumn("parameter"): lambda each: Cell(each.name, _style(each)),
    TerminalColumn("value", right=True): lambda each: Cell(value_text(each.value), _style(each)),
    TerminalColumn("default", right=True): lambda each: (
        value_text(each.default) if each.default is not None or each.meaning else ""
    ),
    TerminalColumn("from"): lambda each: Cell(each.source, _style(each)),
    TerminalColumn("unit", folds=True, drops=2): lambda each: each.unit,
    TerminalColumn("meaning", folds=True, drops=1): lambda each: each.meaning,
}


def _style(parameter: EffectiveParameter) -> str:
    return "bold" if parameter.changed else ""


def _facts(why: RuleExplanation, now: float) -> list[tuple[str, Shown]]:
    row, status = why.row, status_cell(why.row.status)
    is_left_out = why.record is not None and not why.record.policy.evaluated
    facts: list[tuple[str, Shown]] = [
        ("status", Cell(f"{status.text}. {why.meaning}", status.style)),
        ("not evaluated", Cell(why.known.policy.why, "bold yellow") if is_left_out else ""),
        ("severity", severity_cell(row.finding.severity)),
        ("measured", why.comparison or ""),
        ("worst", row.worst or ""),
        ("patience", "" if why.patience is None else _patience(why.patience)),
        ("data points", f"{row.data_points:,}" if row.data_points else ""),
        ("evaluated through", time_text(row.evaluated_through, now)),
        ("fired", _history(why, now)),
        ("share of time", _shares(row)),
        ("cost", row.finding.cost or ""),
    ]
    return [(name, value) for name, value in facts if value]


def _patience(patience: Patience) -> str:
    parts = [f"{patience['seen']:,} of {patience['needed']:,} {patience['counts']}"]
    if patience["left"] and patience["left_s"] is not None:
        parts.append(f"{patience['left']:,} more are needed, about {show_duration(patience['left_s'])}")
    if patience["streak"] is not None:
        parts.append(f"the condition held for {patience['streak']:,} in a row")
    if patience["window_points"] is not None:
        begin, end = patience["window_from"], patience["window_to"]
        when = "" if begin is None else f", {clock_times(begin, end)}"
        parts.append(f"the window has {counted(patience['window_points'], 'point')}{when}")
    return "; ".join(parts)


def _history(why: RuleExplanation, now: float) -> str:
    row = why.row
    if not row.times_fired:
        return ""
    times = "once" if row.times_fired == 1 else f"{row.times_fired} times"
    ended = why.known.episodes.get(row.rule, 0)
    over = f"; {counted(ended, 'episode')} ended" if ended else ""
    return f"{times}, last at {time_text(row.fired_at, now)}; seen at {counted(row.violations, 'evaluation')}{over}"


def _episodes(row: RuleRow) -> list[str]:
    """Return a line for each episode that is kept, the newest first, and how many there were before."""
    kept = [episode.entry for episode in reversed(row.finding.episodes)]
    lines = [f"{each.sentence}{'' if each.lost is None else f'; it cost {each.lost}'}." for each in kept]
    return [*lines, *([f"{counted(row.earlier_episodes, 'episode')} before."] if row.earlier_episodes else [])]


def _shares(row: RuleRow) -> str:
    parts = []
    if row.affected_percent is not None:
        parts.append(f"seen in {show_percent(row.affected_percent)} of the evaluated time")
    if row.wasted_percent is not None:
        parts.append(f"{show_percent(row.wasted_percent)} of the paid time lost")
    return ", ".join(parts)


def _held_back(rule: str, alerts: AlertPolicy) -> str:
    if alerts.is_staged(rule):
        return "It is staged: its findings are recorded, without an alert or a stop."
    return "It is muted: its findings raise no alert, except for a stop." if alerts.is_muted(rule) else ""


def _fire_done(of_job: RuleRow, now: float) -> list[str]:
    if of_job.fire_id is None:
        return []
    lines = [of_job.action or "The fire is being handled: no outcome is recorded yet."]
    if of_job.action_at is not None:
        sent = f"Alert {of_job.alert_id} was sent" if of_job.alert_id else "No alert was delivered"
        lines.append(f"{sent}, {time_text(of_job.action_at, now)}.")
    if of_job.report_uri is not None:
        lines.append(f"A report was written; `trainguard open {of_job.job}` shows it:")
    return lines


def _nodes(nodes: Sequence[RuleRow], now: float) -> list[Block]:
    counts = Counter(node.status.value for node in nodes)
    by_status = ", ".join(f"{amount} {status}" for status, amount in counts.items())
    cells: Mapping[TerminalColumn, Callable[[RuleRow], Shown]] = {
        TerminalColumn("node"): lambda row: unit_title(str(row.node)),
        TerminalColumn("status"): lambda row: status_cell(row.status),
        TerminalColumn("measured", right=True): lambda row: with_unit(row.finding.measured, measured_as(row)[1]),
        TerminalColumn("threshold", right=True): lambda row: with_unit(row.finding.threshold, measured_as(row)[1]),
        TerminalColumn("patience", right=True, drops=2): lambda row: row.patience or "",
        TerminalColumn("worst", folds=True): lambda row: row.worst or "",
        TerminalColumn("fired", folds=True, drops=1): lambda row: (
            f"{row.times_fired} x, last {time_text(row.fired_at, now)}" if row.times_fired else ""
        ),
    }
    blocks: list[Block] = [heading(f"Nodes ({len(nodes)}: {by_status})"), table(nodes[:NODES_SHOWN], cells)]
    if len(nodes) > NODES_SHOWN:
        more = counted(len(nodes) - NODES_SHOWN, "node")
        blocks.append(Line(f"… and {more} more, none of them worse. All are in --json."))
    return blocks


def _section(title: str, sentences: Sequence[str]) -> list[Block]:
    return [heading(title), *(Line(_sentence(each), indent=2) for each in sentences)] if sentences else []


def _sentence(text: str) -> str:
    """Begin with a capital, unless the first word is a name such as ``gpu0`` or ``algo-1``."""
    return text[:1].upper() + text[1:] if text.split(" ", 1)[0].strip(":,").isalpha() else text
