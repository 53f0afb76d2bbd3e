"""From runs to a verdict, on the terminal and in files."""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer
from msgspec.structs import replace

from trainguard.cli.output.files import write_files
from trainguard.cli.output.rendering import Block, Cell, Line, TerminalColumn, heading, table
from trainguard.cli.output.result import FIRED, NO_VERDICT, RAN, CommandResult
from trainguard.core.errors import RequestError
from trainguard.gate import text
from trainguard.gate.cause import ledger_cause
from trainguard.gate.document import Cause, ChangedOperator, GateVerdict
from trainguard.gate.judge import verdict_of
from trainguard.gate.noise import Answer
from trainguard.gate.outputs import junit as junit_report
from trainguard.gate.outputs import markdown as markdown_summary
from trainguard.gate.text import NAMES, change_of, other_faults
from trainguard.local.gate import gate_run
from trainguard.local.gate_settings import GateSettings, expanded, metrics_of, tolerances_of
from trainguard.render.numbers import shown_name

_STYLES = {Answer.PASSED: "green", Answer.REGRESSION: "bold red", Answer.INCONCLUSIVE: "yellow"}
_EXIT_CODES = {Answer.PASSED: RAN, Answer.REGRESSION: FIRED, Answer.INCONCLUSIVE: NO_VERDICT}
_LONGEST_NAME = 60


def gated(
    candidates: Sequence[str],
    settings: GateSettings,
    *,
    baselines: Sequence[str],
    tolerances: Sequence[str],
    metrics: Sequence[str],
    loss_step: int | None,
) -> GateVerdict:
    """Read the runs and judge the candidate; options go before settings of the file."""
    against = expanded(baselines or settings.baselines)
    if not against:
        raise RequestError("No baseline is given", "Name its runs by --baseline, or as baselines in a file (--config).")
    own_places = expanded(candidates)
    # A pattern may find a candidate, too: it is no baseline, unless no other is left.
    real = {os.path.realpath(each) for each in own_places}
    both = [each for each in against if os.path.realpath(each) in real]
    both = both if len(both) < len(against) else []
    own = [gate_run(place) for place in own_places]
    others = [gate_run(place) for place in against if place not in both]
    own[0] = dataclasses.replace(own[0], notes=(*own[0].notes, *map(text.warning_both, both)))
    verdict = verdict_of(
        own,
        others,
        tolerances={**settings.tolerances, **tolerances_of(tolerances)},
        only=metrics_of(metrics) or settings.metrics,
        loss_step=settings.loss_step if loss_step is None else loss_step,
    )
    if verdict.verdict is Answer.PASSED:
        return verdict
    # The cause by kernel traces says more of a step than the ledger.
    cause: Cause | None = None
    operators: list[ChangedOperator] = []
    places = (own[0].place, others[-1].place)
    if all(Path(each).is_dir() for each in places):
        from trainguard.local.gate_traces import cause_by_traces

        cause, operators = cause_by_traces(*places)
    return replace(verdict, cause=cause or ledger_cause(own, others), operators=operators)


def written(verdict: GateVerdict, *, junit: Path | None, markdown: Path | None, alone: bool) -> CommandResult | int:
    """Write the files that are asked for; ``alone`` prints the Markdown instead of a table. Raises OutputError."""
    if junit is not None:
        write_files(junit.parent, {junit.name: junit_report(verdict).encode()})
    if alone:
        typer.echo(markdown_summary(verdict), nl=False)
        return _EXIT_CODES[verdict.verdict]
    if markdown is not None:
        write_files(markdown.parent, {markdown.name: markdown_summary(verdict).encode()})
    return CommandResult(
        document=verdict,
        blocks=list(_blocks(verdict)),
        notes=[each.text for each in verdict.warnings],
        fired=verdict.verdict is Answer.REGRESSION,
        evaluated=verdict.verdict is not Answer.INCONCLUSIVE,
        failed=verdict.verdict is Answer.REGRESSION,
    )


def _blocks(verdict: GateVerdict) -> Iterator[Block]:
    yield heading(", ".join(verdict.candidates))
    yield Line(verdict.reason, style=_STYLES[verdict.verdict])
    yield from (Line(f"{each.text}.") for each in other_faults(verdict))
    if verdict.metrics:
        yield table(
            verdict.metrics,
            {
                TerminalColumn("verdict"): lambda each: Cell(each.verdict.value, _STYLES[each.verdict]),
                TerminalColumn("metric"): lambda each: NAMES[each.metric],
                TerminalColumn("change", right=True): lambda each: (
                    "" if each.change is None else change_of(each, each.change)
                ),
                TerminalColumn("interval", right=True): lambda each: " to ".join(
                    change_of(each, end) for end in each.interval or ()
                ),
                TerminalColumn("noise", right=True, drops=1): lambda each: (
                    "" if each.noise_between is None else f"{100.0 * each.noise_between:.2f} %"
                ),
                TerminalColumn("runs needed", right=True): lambda each: (
                    "-" if each.runs_needed is None else f"{each.runs_needed:,}"
                ),
                TerminalColumn("scalar", drops=2): lambda each: shown_name(each.name, _LONGEST_NAME),
            },
        )
    if verdict.cause is not None:
        yield Line(verdict.cause.text)
    if verdict.operators:
        yield table(
            verdict.operators,
            {
                TerminalColumn("operator or kernel", folds=True): lambda each: shown_name(each.name, _LONGEST_NAME),
                TerminalColumn("change"): lambda each: each.change.replace("_", " "),
                TerminalColumn("of a step", right=True): lambda each: f"{each.delta_ms:+.3f} ms",
            },
        )
