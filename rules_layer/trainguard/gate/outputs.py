"""A verdict as Markdown for a pull request, and as a JUnit report for a continuous integration."""

import re
from collections.abc import Iterator
from html import escape

from trainguard.core.text import one_line
from trainguard.core.units import counted, listed
from trainguard.gate.document import GateVerdict, MetricVerdict
from trainguard.gate.noise import Answer
from trainguard.gate.text import NAMES, change_of, other_faults
from trainguard.render.numbers import shown_name

_MARKS = {Answer.PASSED: "✅", Answer.REGRESSION: "❌", Answer.INCONCLUSIVE: "⚠️"}
_LONGEST = 400
_SHOWN_OPERATORS, _LONGEST_NAME = 5, 80

# What Markdown and GitHub read as markup, names of people and numbers of issues too.
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~!&@$:])")
_NO_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _plain(text: str) -> str:
    """Return a text in which Markdown finds nothing to act on."""
    return _MARKUP.sub(lambda found: f"&#{ord(found[0])};", one_line(text, _LONGEST))


def markdown(verdict: GateVerdict) -> str:
    """Return a summary: answer, a row a metric, cause, operators and warnings."""
    return "\n".join(_lines(verdict)) + "\n"


def _lines(verdict: GateVerdict) -> Iterator[str]:
    yield f"### {_MARKS[verdict.verdict]} trainguard gate: {verdict.verdict}"
    yield from ("", _plain(verdict.reason), "")
    for fault in other_faults(verdict):
        yield f"- {_plain(fault.text)}."
    if verdict.metrics:
        yield from ("", "| metric | verdict | change | interval | noise between runs | runs needed |")
        yield "|---|---|---|---|---|---|"
        yield from map(_row, verdict.metrics)
    if verdict.cause is not None:
        yield from ("", _plain(verdict.cause.text))
    if verdict.operators:
        yield from ("", "| operator | change | ms |", "|---|---|---|")
        for each in verdict.operators[:_SHOWN_OPERATORS]:
            yield f"| {_plain(shown_name(each.name, _LONGEST_NAME))} | {_plain(each.change)} | {each.delta_ms:+.3f} |"
    if verdict.warnings:
        yield from ("", f"<details><summary>{counted(len(verdict.warnings), 'warning')}</summary>", "")
        yield from (f"- {_plain(each.text)}" for each in verdict.warnings)
        yield from ("", "</details>")
    yield ""
    yield f"Candidate: {_plain(listed(verdict.candidates))}. Runs of the baseline: {len(verdict.baselines):,}."


def _row(metric: MetricVerdict) -> str:
    cells = [NAMES[metric.metric], metric.verdict.value]
    if metric.change is None or metric.interval is None or metric.noise_between is None:
        cells += ["", "", ""]
    else:
        low, high = (change_of(metric, each) for each in metric.interval)
        cells += [change_of(metric, metric.change), f"{low} to {high}", f"{100.0 * metric.noise_between:.2f} %"]
    needed = "not by runs" if metric.runs_needed is None else f"{metric.runs_needed:,}"
    return f"| {' | '.join([*cells, needed])} |"


def junit(verdict: GateVerdict) -> str:
    """Return a report: a case a metric and a fault; a regression is a failure, what is not decided an error."""
    cases = [(NAMES[each.metric], each.verdict, each.reason) for each in verdict.metrics]
    cases += [(each.kind, each.verdict, each.text) for each in verdict.faults]
    if verdict.verdict not in {each for _, each, _ in cases}:
        cases.append(("verdict", verdict.verdict, verdict.reason))
    # A metric that holds nothing back is no error of the whole.
    if verdict.verdict is Answer.PASSED:
        cases = [(name, Answer.PASSED, why) for name, _, why in cases]
    failures, errors = (
        sum(each is answer for _, each, _ in cases) for answer in (Answer.REGRESSION, Answer.INCONCLUSIVE)
    )
    counts = f'tests="{len(cases)}" failures="{failures}" errors="{errors}"'
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f"<testsuites {counts}>", f'<testsuite name="gate" {counts}>']
    for name, answer, why in cases:
        lines.append(f'<testcase classname="trainguard.gate" name="{_xml(name)}">{_outcome(answer, why)}</testcase>')
    return "\n".join([*lines, "</testsuite>", "</testsuites>", ""])


def _outcome(answer: Answer, why: str) -> str:
    if answer is Answer.PASSED:
        return f"<system-out>{_xml(why)}</system-out>"
    tag = "failure" if answer is Answer.REGRESSION else "error"
    return f'<{tag} type="{answer}" message="{_xml(why)}"></{tag}>'


def _xml(text: str) -> str:
    return escape(_NO_XML.sub("?", one_line(text)))
