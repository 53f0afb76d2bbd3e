"""A rule's state on a job as a person reads it."""

from collections import Counter
from collections.abc import Sequence

from trainguard.aws.dynamodb.stored_form import shown_times, shown_value
from trainguard.cli.commands.explain.explanation import Explanation, NodeState
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
from trainguard.cli.output.rows import time_text, with_unit
from trainguard.cli.services.effective_parameters import EffectiveParameter, value_text
from trainguard.cli.services.job_list import NODES_SHOWN, Configuration, configuration_blocks, stop_text
from trainguard.core.finding import Fact, clock_times
from trainguard.core.records import unit_title
from trainguard.core.timestamps import epoch_from_iso
from trainguard.core.units import counted, show_duration, show_percent

FOREIGN = (
    "{} is no rule of TrainGuard's: --rules-package, with the package that was deployed, tells when it fires and what "
    "its parameters default to."
)


def explanation_blocks(why: Explanation, *, now: float) -> list[Block]:
    """Lay an explanation out for a person."""
    on = f", node {unit_title(why.node)}" if why.node is not None else ""
    blocks: list[Block] = [
        Heading(f"{why.rule} on {why.job}{on}"),
        Facts(_facts(why, now)),
        Heading("Why"),
        Line(_sentence(why.reason), indent=2),
        Line(
            f"It fires when {why.fires_when}." if not why.fires_when.startswith("never") else "",
            indent=2,
        ),
        Line(_held_back(why), indent=2),
    ]
    blocks = [block for block in blocks if not (isinstance(block, Line) and not block.text)]
    if why.facts:
        blocks += [Heading("Facts"), Grid(_FACTS, [_fact(each) for each in why.facts])]
    if why.nodes:
        blocks += _nodes(why.nodes, now)
    blocks += _section("When it held", _episodes(why))
    blocks += _section("What was done", _done(why, now))
    if why.done is not None and why.done.report_uri is not None:
        blocks.append(Line(f"  {why.done.report_uri}", whole=True))
    configuration = Configuration(setting_faults=why.setting_faults, rules_elsewhere=why.rules_elsewhere)
    blocks += configuration_blocks(configuration, why.rule)
    blocks += _section("What to do", [why.advice] if why.advice else [])
    blocks += _section("What comes", why.outlook)
    return [*blocks, Heading("Parameters"), Grid(_PARAMETERS, [_parameter(each) for each in why.parameters])]


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


def _facts(why: Explanation, now: float) -> list[tuple[str, Shown]]:
    status = status_cell(why.status)
    facts: list[tuple[str, Shown]] = [("status", Cell(f"{status.text}. {why.meaning}", status.style))]
    if why.evaluated is False:
        facts.append(("not evaluated", Cell(why.evaluated_because or "", "bold yellow")))
    if why.severity is not None:
        facts.append(("severity", severity_cell(why.severity)))
    facts += [
        ("measured", why.comparison or ""),
        ("worst", why.worst or ""),
        ("patience", "" if why.patience is None else _patience(why.patience)),
        ("data points", f"{why.data_points:,}" if why.data_points else ""),
        ("evaluated through", _when(why.evaluated_through, now)),
        ("fired", _history(why, now)),
        ("share of time", _shares(why)),
        ("cost", why.cost_lost or ""),
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


def _history(why: Explanation, now: float) -> str:
    if not why.times_fired:
        return ""
    times = "once" if why.times_fired == 1 else f"{why.times_fired} times"
    ended = f"; {counted(why.episodes_ended, 'episode')} ended" if why.episodes_ended else ""
    return f"{times}, last at {_when(why.fired_at, now)}; seen at {counted(why.violations, 'evaluation')}{ended}"


def _episodes(why: Explanation) -> list[str]:
    """Return a line for each episode that is kept, the newest first, and how many there were before."""
    lines = [f"{each.sentence}{'' if each.lost is None else f'; it cost {each.lost}'}." for each in why.episodes[::-1]]
    return [
        *lines,
        *([f"{counted(why.earlier_episodes, 'episode')} before."] if why.earlier_episodes else []),
    ]


def _shares(why: Explanation) -> str:
    parts = []
    if why.affected_percent is not None:
        parts.append(f"seen in {show_percent(why.affected_percent)} of the evaluated time")
    if why.wasted_percent is not None:
        parts.append(f"{show_percent(why.wasted_percent)} of the paid time lost")
    return ", ".join(parts)


def _held_back(why: Explanation) -> str:
    if why.is_staged:
        return "It is staged: its findings are recorded, without an alert or a stop."
    return "It is muted: its findings raise no alert, except for a stop." if why.is_muted else ""


def _done(why: Explanation, now: float) -> list[str]:
    stop = stop_text(why.stop, None if why.done is None else why.done.fire_id, now)
    return [*_fire_done(why, now), *([stop] if stop else [])]


def _fire_done(why: Explanation, now: float) -> list[str]:
    if why.done is None:
        return []
    lines = [why.done.action or "The fire is being handled: no outcome is recorded yet."]
    if why.done.action_at is not None:
        sent = f"Alert {why.done.alert_id} was sent" if why.done.alert_id else "No alert was delivered"
        lines.append(f"{sent}, {_when(why.done.action_at, now)}.")
    if why.done.report_uri is not None:
        lines.append(f"A report was written; `trainguard open {why.job}` shows it:")
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
    by_status = ", ".join(f"{amount} {status}" for status, amount in counts.items())
    blocks: list[Block] = [Heading(f"Nodes ({len(nodes)}: {by_status})"), Grid(columns, rows)]
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
