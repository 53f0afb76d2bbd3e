"""``trainguard explain``: a rule's state on a job, told to a person."""

import time
from collections import Counter
from collections.abc import Sequence

from trainguard.adapters.facts import shown_times, shown_value
from trainguard.adapters.timestamps import epoch_from_iso
from trainguard.cli.commands.explain.explanation import Explanation, NodeState, explain
from trainguard.cli.commands.explain.next_steps import Patience
from trainguard.cli.output.blocks import (
    Block,
    Cell,
    Column,
    Facts,
    Grid,
    Heading,
    Line,
    Shown,
    severity_cell,
    status_cell,
)
from trainguard.cli.output.result import CommandResult, print_result
from trainguard.cli.output.rows import time_text, with_unit
from trainguard.cli.services.deployment import Where, connect
from trainguard.cli.services.effective_parameters import EffectiveParameter, value_text
from trainguard.cli.services.job_rows import NODES_SHOWN, Configuration, configuration_blocks, read_job, stop_text
from trainguard.cli.services.names import EVERY_RULE, rule_named
from trainguard.finding import Fact, clock_times
from trainguard.records import unit_title
from trainguard.rules.units import counted, show_duration, show_percent

_FOREIGN = (
    "{} is no rule of TrainGuard's: --rules-package, with the package that was deployed, tells when it fires and what "
    "its parameters default to."
)


def explain_command(where: Where, job: str, rule: str, *, node: str | None, as_json: bool) -> int:
    """Explain a rule's state; return the exit code."""

    def make() -> CommandResult:
        record, rows = read_job(connect(where).stores, job)
        name = rule_named(rule, [stored.rule for stored in rows])
        now = time.time()
        explained = explain(job, record, rows, rule=name, node=node, now=now)
        notes = [] if name in EVERY_RULE else [_FOREIGN.format(name)]
        return CommandResult(document=explained, blocks=explanation_blocks(explained, now=now), notes=notes)

    return print_result(make, as_json=as_json)


def explanation_blocks(told: Explanation, *, now: float) -> list[Block]:
    """Lay an explanation out for a person."""
    on = f", node {unit_title(told.node)}" if told.node is not None else ""
    blocks: list[Block] = [
        Heading(f"{told.rule} on {told.job}{on}"),
        Facts(_facts(told, now)),
        Heading("Why"),
        Line(_sentence(told.reason), indent=2),
        Line(f"It fires when {told.fires_when}." if not told.fires_when.startswith("never") else "", indent=2),
        Line(_held_back(told), indent=2),
    ]
    blocks = [block for block in blocks if not (isinstance(block, Line) and not block.text)]
    if told.facts:
        blocks += [Heading("Facts"), Grid(_FACTS, [_fact(each) for each in told.facts])]
    if told.nodes:
        blocks += _nodes(told.nodes, now)
    blocks += _section("When it held", _episodes(told))
    blocks += _section("What was done", _done(told, now))
    if told.done is not None and told.done.report_uri is not None:
        blocks.append(Line(f"  {told.done.report_uri}", whole=True))
    configuration = Configuration(setting_faults=told.setting_faults, rules_elsewhere=told.rules_elsewhere)
    blocks += configuration_blocks(configuration, told.rule)
    blocks += _section("What to do", [told.advice] if told.advice else [])
    blocks += _section("What comes", told.outlook)
    return [*blocks, Heading("Parameters"), Grid(_PARAMETERS, [_parameter(each) for each in told.parameters])]


_FACTS = (
    Column("fact"),
    Column("value", right=True),
    Column("threshold", right=True, drops=3),
    Column("series", drops=1),
    Column("where", folds=True, drops=4),
    Column("when", folds=True, drops=2),
)


def _fact(fact: Fact) -> list[Shown]:
    return [
        fact.name,
        shown_value(fact.value, fact.unit),
        "" if fact.threshold is None else shown_value(fact.threshold, fact.unit),
        fact.series or "",
        "/".join(each for each in (fact.node, fact.device) if each),
        shown_times(fact),
    ]


_PARAMETERS = (
    Column("parameter"),
    Column("value", right=True),
    Column("default", right=True),
    Column("from"),
    Column("unit", folds=True, drops=2),
    Column("meaning", folds=True, drops=1),
)


def _facts(told: Explanation, now: float) -> list[tuple[str, Shown]]:
    status = status_cell(told.status)
    facts: list[tuple[str, Shown]] = [("status", Cell(f"{status.text}. {told.meaning}", status.style))]
    if told.evaluated is False:
        facts.append(("not evaluated", Cell(told.evaluated_because or "", "bold yellow")))
    if told.severity is not None:
        facts.append(("severity", severity_cell(told.severity)))
    facts += [
        ("measured", told.comparison or ""),
        ("worst", told.worst or ""),
        ("patience", "" if told.patience is None else _patience(told.patience)),
        ("data points", f"{told.data_points:,}" if told.data_points else ""),
        ("evaluated through", _when(told.evaluated_through, now)),
        ("fired", _history(told, now)),
        ("share of time", _shares(told)),
        ("cost", told.cost_lost or ""),
    ]
    return [(name, value) for name, value in facts if value]


def _patience(patience: Patience) -> str:
    parts = [f"{patience.seen:,} of {patience.needed:,} {patience.counts}"]
    if patience.left and patience.left_s is not None:
        parts.append(f"{patience.left:,} more are needed, about {show_duration(patience.left_s)}")
    if patience.streak is not None:
        parts.append(f"the condition held for {patience.streak:,} in a row")
    if patience.window_points is not None:
        when = "" if patience.window_from is None else f", {clock_times(patience.window_from, patience.window_to)}"
        parts.append(f"the window has {counted(patience.window_points, 'point')}{when}")
    return "; ".join(parts)


def _history(told: Explanation, now: float) -> str:
    if not told.times_fired:
        return ""
    times = "once" if told.times_fired == 1 else f"{told.times_fired} times"
    ended = f"; {counted(told.episodes_ended, 'episode')} ended" if told.episodes_ended else ""
    return f"{times}, last at {_when(told.fired_at, now)}; seen at {counted(told.violations, 'evaluation')}{ended}"


def _episodes(told: Explanation) -> list[str]:
    """Return a line for each episode that is kept, the newest first, and how many there were before."""
    lines = [f"{each.sentence}{'' if each.lost is None else f'; it cost {each.lost}'}." for each in told.episodes[::-1]]
    return [*lines, *([f"{counted(told.earlier_episodes, 'episode')} before."] if told.earlier_episodes else [])]


def _shares(told: Explanation) -> str:
    parts = []
    if told.affected_percent is not None:
        parts.append(f"seen in {show_percent(told.affected_percent)} of the evaluated time")
    if told.wasted_percent is not None:
        parts.append(f"{show_percent(told.wasted_percent)} of the paid time lost")
    return ", ".join(parts)


def _held_back(told: Explanation) -> str:
    """Say what does not come of the rule's findings."""
    if told.is_staged:
        return "It is staged: its findings are recorded, without an alert or a stop."
    return "It is muted: its findings raise no alert, except for a stop." if told.is_muted else ""


def _done(told: Explanation, now: float) -> list[str]:
    stop = stop_text(told.stop, None if told.done is None else told.done.fire_id, now)
    return [*_fire_done(told, now), *([stop] if stop else [])]


def _fire_done(told: Explanation, now: float) -> list[str]:
    if told.done is None:
        return []
    lines = [told.done.action or "The fire is being handled: no outcome is recorded yet."]
    if told.done.action_at is not None:
        sent = f"Alert {told.done.alert_id} was sent" if told.done.alert_id else "No alert was delivered"
        lines.append(f"{sent}, {_when(told.done.action_at, now)}.")
    if told.done.report_uri is not None:
        lines.append(f"A report was written; `trainguard open {told.job}` shows it:")
    return lines


def _nodes(nodes: Sequence[NodeState], now: float) -> list[Block]:
    columns = (
        Column("node"),
        Column("status"),
        Column("measured", right=True),
        Column("threshold", right=True),
        Column("patience", right=True, drops=2),
        Column("worst", folds=True),
        Column("fired", folds=True, drops=1),
    )
    rows = [_node(node, now) for node in nodes[:NODES_SHOWN]]
    counts = Counter(node.status.value for node in nodes)
    told = ", ".join(f"{amount} {status}" for status, amount in counts.items())
    blocks: list[Block] = [Heading(f"Nodes ({len(nodes)}: {told})"), Grid(columns, rows)]
    if len(nodes) > NODES_SHOWN:
        blocks.append(
            Line(f"… and {counted(len(nodes) - NODES_SHOWN, 'node')} more, none of them worse. All are in --json.")
        )
    return blocks


def _node(node: NodeState, now: float) -> list[Shown]:
    return [
        unit_title(node.node),
        status_cell(node.status),
        with_unit(node.measured, node.unit),
        with_unit(node.threshold, node.unit),
        node.patience or "",
        node.worst or "",
        f"{node.times_fired} x, last {_when(node.fired_at, now)}" if node.times_fired else "",
    ]


def _parameter(parameter: EffectiveParameter) -> list[Shown]:
    style = "bold" if parameter.changed else ""
    return [
        Cell(parameter.name, style),
        Cell(value_text(parameter.value), style),
        value_text(parameter.default) if parameter.default is not None or parameter.meaning else "",
        Cell(parameter.source, style),
        parameter.unit,
        parameter.meaning,
    ]


def _section(title: str, sentences: Sequence[str]) -> list[Block]:
    return [Heading(title), *(Line(_sentence(each), indent=2) for each in sentences)] if sentences else []


def _sentence(text: str) -> str:
    """Begin with a capital, unless the first word is a name such as ``gpu0`` or ``algo-1``."""
    return text[:1].upper() + text[1:] if text.split(" ", 1)[0].strip(":,").isalpha() else text


def _when(iso_time: str | None, now: float) -> str:
    return "" if iso_time is None else time_text(epoch_from_iso(iso_time), now)
