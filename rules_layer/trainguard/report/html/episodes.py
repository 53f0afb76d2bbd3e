"""The episodes of the findings as the page shows them."""

import re
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from trainguard.core.finding import EpisodeEntry
from trainguard.core.timestamps import epoch_of
from trainguard.core.units import listed
from trainguard.render.names import shown_name
from trainguard.render.numbers import NOTHING, duration, elapsed, money, quantity
from trainguard.render.rule_entry import RuleEntry
from trainguard.report.document import Report

MOST_NAMED = 4

_NUMBERED = re.compile(r"(?P<name>.*?)(?P<number>\d+)", re.DOTALL)


Episode = Mapping[str, Any]
"""An episode as templates read it, with its ``entry`` and ``finding``.

``until``, epoch seconds, is of one that goes on how far the job was judged.
"""


def episodes_of(report: Report) -> dict[str, list[Episode]]:
    rules = {entry.rule: entry for entry in report.rules}
    number = count(1)
    return {
        finding.rule: [
            {"anchor": f"episode-{next(number)}", "finding": finding, **_shown(entry, report, rules.get(finding.rule))}
            for entry in finding.episodes
        ]
        for finding in report.findings
    }


def _shown(entry: EpisodeEntry, report: Report, rule: RuleEntry | None) -> dict[str, Any]:
    job, start = report.job, epoch_of(entry.start)
    last = entry.end or job.ended_at or job.evaluated_through or report.generated_at
    until = max(epoch_of(last), start)
    cost = NOTHING if entry.wasted_s is None else f"{duration(entry.wasted_s)} of a node"
    return {
        "entry": entry,
        "start": start,
        "until": until,
        "span_s": until - start,
        "into": NOTHING if job.started_at is None else elapsed(start - epoch_of(job.started_at)),
        "lasted": duration(until - start),
        "place": place_of(entry),
        "measured": quantity(entry.measured, None if rule is None else rule.unit),
        "cost": cost if entry.cost is None else money(entry.cost, report.cost.currency),
    }


def place_of(entry: EpisodeEntry) -> str:
    """Where an episode was: ``all nodes``, ``algo-2``, ``algo-2: gpu0 to gpu3``."""
    if not entry.nodes and not entry.gpus:
        return "whole job"
    if entry.node is not None:
        gpus = runs([gpu.rpartition("/")[2] for gpu in entry.gpus])
        return f"{shown_name(entry.node)}: {gpus}" if gpus else shown_name(entry.node)
    by_node: dict[str, list[str]] = {node: [] for node in entry.nodes}
    for each in entry.gpus:
        node, _, gpu = each.rpartition("/")
        by_node.setdefault(node, []).append(gpu)
    named = [f"{shown_name(node)}: {runs(gpus)}" if gpus else shown_name(node) for node, gpus in by_node.items()]
    if len(named) > MOST_NAMED:
        named = [shown_name(node) for node in by_node]
    return listed(named, MOST_NAMED)


def runs(names: Sequence[str]) -> str:
    """Join names of which some are numbered on: ``gpu0 to gpu3, gpu6``."""
    parts: list[tuple[str, str]] = []
    for name in names:
        if parts and _follows(parts[-1][1], name):
            parts[-1] = (parts[-1][0], name)
        else:
            parts.append((name, name))
    written = []
    for first, last in parts:
        joint = " to " if not _follows(first, last) else ", "
        written.append(shown_name(first) if first == last else f"{shown_name(first)}{joint}{shown_name(last)}")
    return ", ".join(written)


def _follows(before: str, after: str) -> bool:
    one, two = _NUMBERED.fullmatch(before), _NUMBERED.fullmatch(after)
    if one is None or two is None or one["name"] != two["name"]:
        return False
    return int(two["number"]) - int(one["number"]) == 1


def all_of(episodes: Mapping[str, Sequence[Episode]]) -> list[Episode]:
    return sorted((each for held in episodes.values() for each in held), key=lambda each: each["start"])
