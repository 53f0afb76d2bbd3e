"""What rules over kernel profiles say: words of facts, for each kind of finding and for each outcome without one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from trainguard.core.finding import Fact, Status
from trainguard.core.units import counted
from trainguard.kernels.rules.finding import percent
from trainguard.rules.rule_result import FactSheet, Words

SHARE = "share"
SNAPSHOTS, UNREAD_SNAPSHOTS = "snapshots", "unread_snapshots"


class CaptureKind(StrEnum):
    """Outcomes of a rule without a finding; a finding's kind is that of a `Saying`."""

    NO_CAPTURE = "no_capture"
    HOLDS_NOT = "holds_not"
    UNREAD = "unread"
    CUT_OFF = "cut_off"
    WORK_LOST = "work_lost"
    TOO_FEW_STEPS = "too_few_steps"
    NO_MEMORY = "no_memory"
    NOT_IN_SNAPSHOTS = "not_in_snapshots"


@dataclass(frozen=True, slots=True)
class Saying:
    """The words on one kind of finding, which no two rules share.

    ``summary`` is a template of facts by name, shares as percentages; in ``advice`` facts named ``remedy`` stand for
    it. ``clause`` is in the past tense, for a report's first sentence; empty of what never fires.
    """

    kind: str
    summary: str | Callable[[FactSheet], str]
    advice: str
    clause: str = ""


def words(saying: Saying, facts: Sequence[Fact]) -> tuple[str, str]:
    said, sheet = saying.summary, FactSheet(Status.FIRED, saying.kind, tuple(facts))
    summary = said(sheet) if callable(said) else said.format_map(shown(sheet))
    return summary, " ".join(str(fact.value) for fact in sheet.all("remedy")) or saying.advice


def gpu_of(sheet: FactSheet, name: str) -> str:
    """Return the GPU that a fact is of, as ``GPU 3``."""
    return f"GPU {(sheet[name].device or '').removeprefix('gpu')}"


def shown(sheet: FactSheet) -> Mapping[str, Any]:
    return {
        fact.name: percent(float(fact.value)) if fact.unit == SHARE else fact.value for fact in reversed(sheet.facts)
    }


def silence(sheet: FactSheet) -> Words:
    return Words(_SILENT[CaptureKind(sheet.kind)](sheet))


def text(saying: Saying, sheet: FactSheet) -> Words:
    summary, advice = words(saying, sheet.facts)
    if sheet.status is Status.OK:
        return Words(summary)
    if sheet.status is not Status.FIRED:
        return Words(_unsure(sheet) + summary)
    reason = ("In an earlier capture: " if sheet.past else "") + _on_ranks(sheet) + summary
    return Words(reason, advice + _explained(sheet), saying.clause)


def _unsure(sheet: FactSheet) -> str:
    cut = "files that are cut off, " if sheet.get("cut_traces") else ""
    lost = "traces that lost work of the GPU, " if sheet.get("lost_traces") else ""
    why = f"{cut}{lost}too few steps"
    many = counted(int(sheet.number("unsure_ranks")), "rank")
    return f"On {many} with low confidence, from {why} or only the first or last one: "


def _on_ranks(sheet: FactSheet) -> str:
    affected = sheet.get("ranks_affected")
    if affected is None:
        return ""
    names = [str(fact.value) for fact in sheet.all("rank")]
    number = int(affected.value)
    if number == 1:
        return f"On {names[0]}: "
    named = ", ".join(names) + (", …" if number > len(names) else "")
    return f"On {number:,} of {int(sheet.number('ranks_read')):,} ranks ({named}), at worst: "


def _explained(sheet: FactSheet) -> str:
    gain, share = sheet.number("gain_per_step"), sheet.number("gain_share")
    if gain <= 0:
        return ""
    return f" It explains {100 * share:.1f} % of the time, {gain / 1e6:,.3f} ms a step."


def _holds_not(sheet: FactSheet) -> str:
    ranks = counted(int(sheet.number("ranks_judged")), "rank")
    return f"It does not hold on {ranks} of the newest capture.{_cut(sheet)}"


def _cut(sheet: FactSheet) -> str:
    said = [
        f"{counted(int(fact.value), 'trace')} {one if fact.value == 1 else several}"
        for name, one, several in (
            ("cut_traces", "ends early", "end early"),
            ("lost_traces", "lacks work of the GPU", "lack work of the GPU"),
        )
        if (fact := sheet.get(name)) is not None
    ]
    return f" It is judged in part: {', '.join(said)}." if said else ""


def _unread(sheet: FactSheet) -> str:
    traces = counted(int(sheet.number("traces")), "trace")
    why = f"{sheet.name('unread_trace')}: {sheet.name('unread_why')}"
    return f"None of {traces} of the newest capture could be read; {why}."


def _few(sheet: FactSheet) -> str:
    steps = sheet["steps"]
    traces = counted(int(sheet.number("traces")), "trace")
    return (
        f"The newest capture has no trace with a GPU's work in {steps.threshold:g} steps or more ({traces}, "
        f"{counted(int(steps.value), 'step')}). Profile 3 to 10 steps."
    )


def _no_memory(sheet: FactSheet) -> str:
    return (
        f"The newest capture does not say it.{_unread_snapshots(sheet)} Record traces with profile_memory=True, or "
        "memory snapshots, which alone hold a failed allocation."
    )


def _not_in_snapshots(sheet: FactSheet) -> str:
    ranks = sheet.get("ranks_judged")
    traces = "" if ranks is None else f"on {counted(int(ranks.value), 'rank')} of the newest capture and "
    snapshots = counted(int(sheet.number("snapshots_judged")), "memory snapshot")
    return f"It does not hold {traces}in {snapshots}.{_cut(sheet)}{_unread_snapshots(sheet)}"


def _unread_snapshots(sheet: FactSheet) -> str:
    unread = sheet.get(UNREAD_SNAPSHOTS)
    if unread is None:
        return ""
    read = f"{counted(int(unread.value), 'memory snapshot')} could not be read"
    return f" {read}; {sheet.name('unread_snapshot')}: {sheet.name('unread_why')}."


_SILENT = {
    CaptureKind.NO_CAPTURE: lambda _: "No capture was judged yet.",
    CaptureKind.HOLDS_NOT: _holds_not,
    CaptureKind.UNREAD: _unread,
    CaptureKind.CUT_OFF: lambda sheet: f"The newest capture has no whole trace.{_cut(sheet)} Copy whole files.",
    CaptureKind.WORK_LOST: lambda sheet: f"The newest capture has no whole trace.{_cut(sheet)} Record it again.",
    CaptureKind.TOO_FEW_STEPS: _few,
    CaptureKind.NO_MEMORY: _no_memory,
    CaptureKind.NOT_IN_SNAPSHOTS: _not_in_snapshots,
}
