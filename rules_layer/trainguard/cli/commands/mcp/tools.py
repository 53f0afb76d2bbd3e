"""The tools of the server: each a function of a session and its arguments, whose signature is the tool's schema."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, get_type_hints

import msgspec

from trainguard.cli.commands.mcp.session import McpSession
from trainguard.cli.services.readings import SourceReading
from trainguard.core.errors import RequestError, SeveralRunsError, TrainGuardError
from trainguard.hangs.verdict import HangVerdict
from trainguard.kernels.comparison.compare import compared as compared_kernels
from trainguard.kernels.document import KernelProfiles
from trainguard.report.agents.answers import (
    captured_answer,
    compared_answer,
    explained,
    hang_answer,
    kernel_changes,
    kernels_answer,
    ledger_of,
    rules_answer,
    what_ifs,
)
from trainguard.report.agents.foreign import foreign, foreign_list
from trainguard.report.agents.series import Quantity, series_answer
from trainguard.report.agents.stragglers import straggler_what_ifs
from trainguard.report.agents.verdict import AgentVerdict, Answer
from trainguard.report.comparison import compared
from trainguard.report.document import Report
from trainguard.stragglers.verdict import StragglerVerdict

# Bytes of an answer; a longer one is a fault.
MOST_BYTES = 12_000

_LONGEST_FAULT = 300

Source = Annotated[
    str,
    msgspec.Meta(
        min_length=1, description="A run's folder or file below the root, a job's name, or an allowed remote place."
    ),
]
Rule = Annotated[str, msgspec.Meta(max_length=64, description="A rule's name or its beginning; all without it.")]
Function = Callable[..., Answer | AgentVerdict]


def verdict(session: McpSession, *, source: Source) -> AgentVerdict:
    """Say what is wrong with a job and the one change to make first, in a kilobyte. Call this first."""
    return session.reading(source).verdict


def explain(session: McpSession, *, source: Source, rule: Rule = "") -> Answer:
    """Give the facts of the first findings: numbers, thresholds, places, times, and what each asks to change."""
    reading = session.reading(source)
    match reading.what:
        case Report():
            return explained(reading.what, rule)
        case HangVerdict():
            return hang_answer(reading.what)
        case StragglerVerdict():
            return straggler_what_ifs(reading.what)
        case _:
            return kernels_answer(reading.what)


def ledger(
    session: McpSession,
    *,
    source: Source,
    node: Annotated[int, msgspec.Meta(ge=-1, description="A node by its number from 0; -1 is the whole job.")] = -1,
) -> Answer:
    """Say where the paid GPU time went: shares, seconds and money by bucket."""
    return ledger_of(_report(session.reading(source)), None if node < 0 else node)


def compare(session: McpSession, *, source: Source, other: Source) -> Answer:
    """Say what is other in another run: cost, duration, ledger, steps, losses, findings; of traces, kernels."""
    here, there = session.reading(source), session.reading(other)
    if isinstance(here.what, KernelProfiles) and isinstance(there.what, KernelProfiles):
        return kernel_changes(compared_kernels(there.what, here.what))
    report = _report(here)
    return compared_answer(msgspec.structs.replace(report, comparison=compared(report, _report(there))))


def series(
    session: McpSession,
    *,
    source: Source,
    quantity: Quantity = "gpu_utilization",
    points: Annotated[int, msgspec.Meta(ge=2, le=60, description="Points of a line.")] = 20,
    first: Annotated[int, msgspec.Meta(ge=0, description="Of more than four lines, the first to give.")] = 0,
) -> Answer:
    """Give four lines of a quantity over time, or of losses and metrics over steps, in a few points each."""
    return series_answer(_report(session.reading(source)), quantity, points=points, first=first)


def kernels(session: McpSession, *, source: Source) -> Answer:
    """Give the findings on kernel traces, what each can save, and the kernels with most time."""
    reading = session.reading(source)
    if isinstance(reading.what, KernelProfiles):
        return kernels_answer(reading.what)
    found = captured_answer(_report(reading))
    if not found:
        raise RequestError(f"{source!r} has no kernel traces", "Record 3 to 10 steps with torch.profiler.")
    return found


def what_if(session: McpSession, *, source: Source) -> Answer:
    """List the changes that findings ask for, with the share of paid time, money or step that each can save."""
    reading = session.reading(source)
    if isinstance(reading.what, StragglerVerdict):
        return straggler_what_ifs(reading.what)
    return kernels_answer(reading.what) if isinstance(reading.what, KernelProfiles) else what_ifs(_report(reading))


def rules(session: McpSession, *, rule: Rule = "") -> Answer:
    """Say what rules there are; with a name, what makes it fire and which changes it can ask for."""
    del session
    return rules_answer(rule)


def _report(reading: SourceReading) -> Report:
    if not isinstance(reading.what, Report):
        raise RequestError(f"{reading.source!r} is no run with a report", "verdict and explain say what it holds.")
    return reading.what


@dataclass(frozen=True)
class Tool:
    """A function that agents may call; ``acts`` where it changes anything."""

    function: Function
    acts: bool = False

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def description(self) -> str:
        return " ".join((inspect.getdoc(self.function) or "").split())

    @cached_property
    def arguments(self) -> type[msgspec.Struct]:
        hints = get_type_hints(self.function, include_extras=True)
        given = [
            each for each in inspect.signature(self.function).parameters.values() if each.kind is each.KEYWORD_ONLY
        ]
        fields: list[Any] = [
            (each.name, hints[each.name]) if each.default is each.empty else (each.name, hints[each.name], each.default)
            for each in given
        ]
        return msgspec.defstruct(self.name, fields, kw_only=True, forbid_unknown_fields=True)

    @cached_property
    def schema(self) -> dict[str, Any]:
        _, found = msgspec.json.schema_components([self.arguments])
        return {name: each for name, each in found[self.name].items() if name != "title"}

    def call(self, session: McpSession, arguments: Mapping[str, Any]) -> Answer | AgentVerdict:
        """Return the answer; raises msgspec.ValidationError, TrainGuardError."""
        given = msgspec.convert(arguments, self.arguments)
        return self.function(session, **msgspec.structs.asdict(given))


READING = tuple(Tool(each) for each in (verdict, explain, ledger, compare, series, kernels, what_if, rules))


def fault_answer(fault: Exception) -> Answer:
    """Return a fault: its code, and what it says as foreign text, for that names files and jobs."""
    name = type(fault).__name__.removesuffix("Error")
    code = re.sub(r"(?<=.)(?=[A-Z])", "_", name).lower()
    known = isinstance(fault, TrainGuardError | msgspec.ValidationError)
    detail = foreign(str(fault) if known else "The server has a fault; its log says more.", _LONGEST_FAULT)
    runs = {"runs": foreign_list(fault.runs)} if isinstance(fault, SeveralRunsError) else {}
    return {"error": {"code": code if known else "fault", "detail": detail, **runs}}
