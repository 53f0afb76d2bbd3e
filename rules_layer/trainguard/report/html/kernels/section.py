"""The section of a job's report on kernel profiles: the verdict, what fires, and where the page is."""

from collections.abc import Sequence

from markupsafe import Markup

from trainguard.core.units import counted
from trainguard.kernels.captures.verdict import RuleVerdict
from trainguard.kernels.rules.registry import words_of
from trainguard.render.blocks import Block, Column, Facts, Note, Panel, Table
from trainguard.render.names import shown_name
from trainguard.render.numbers import NOTHING, share
from trainguard.report.document import KernelReport
from trainguard.report.html.kernels.island import nanos

COMMAND = "trainguard kernels FOLDER --out DIR"

_SHOWN = 8


def kernel_sections(kernels: KernelReport) -> list[Panel]:
    """Return the section."""
    blocks: list[Block] = [_facts(kernels)]
    if kernels.findings:
        columns = [
            Column("Rule"),
            Column("Severity"),
            Column("Ranks", "number"),
            Column("Explains", "number"),
            Column("What it found"),
            Column("What to do"),
        ]
        shown = kernels.findings[:_SHOWN]
        blocks.append(Table("What fires on the newest capture", columns, [_row(each) for each in shown]))
        left = len(kernels.findings) - len(shown)
        if left:
            blocks.append(Note(f"{counted(left, 'finding')} more: {kernels.page or COMMAND} has them."))
    blocks += [Note(f"Not read: {name}: {why}.") for name, why in list(kernels.unread_why.items())[:_SHOWN]]
    blocks += [Note(shown_name(f"{note[:1].upper()}{note[1:]}")) for note in kernels.notes[:_SHOWN]]
    if kernels.waits:
        blocks.append(Note("Newer traces are there that are not judged yet."))
    return [Panel("kernels", "Kernel profiles", blocks, kernels.sentence)]


def _facts(kernels: KernelReport) -> Facts:
    link = COMMAND if kernels.page is None else Markup('<a href="{0}">{0}</a>, beside this page').format(kernels.page)
    ranks = counted(kernels.traces, "trace")
    if kernels.world_size is not None:
        ranks += f" of {counted(kernels.world_size, 'rank')}"
    facts: list[tuple[str, str | Markup]] = [
        ("All of it, with the timeline", link if kernels.traces > kernels.unread else NOTHING),
        ("Capture", f"{kernels.capture}, {ranks}, {counted(kernels.steps, 'step')}"),
        ("GPU busy", NOTHING if kernels.busy_share is None else share(kernels.busy_share)),
        ("Mean step, median of ranks", NOTHING if kernels.step_ns is None else nanos(kernels.step_ns)),
        ("GPUs", ", ".join(shown_name(gpu) for gpu in kernels.gpus) or NOTHING),
    ]
    return Facts(facts)


def _row(finding: RuleVerdict) -> Sequence[str]:
    unsure = "" if finding.sure else ", low confidence"
    ranks = finding.sure or finding.unsure
    won = (
        f"{share(finding.gain_share)}, {nanos(finding.gain_ns_per_step)} a step"
        if finding.gain_ns_per_step
        else NOTHING
    )
    summary, advice = words_of(finding)
    return (
        finding.rule.rpartition("/")[2],
        finding.severity.value + unsure,
        f"{ranks:,}",
        won,
        shown_name(summary),
        shown_name(advice),
    )
