"""The profiles below a place, as ``--list`` shows them."""

from collections.abc import Callable, Mapping

from trainguard.cli.output.rendering import Block, Line, Shown, TerminalColumn, heading, severity_cell, table
from trainguard.cli.output.result import CommandResult
from trainguard.kernels.listing import ListedProfile, ListingRequest
from trainguard.local.traces import list_kernels

_SHOWN_PROFILES = 50
_MINUTE = len("2026-11-23T15:04")


def listed(source: str, wanted: ListingRequest) -> CommandResult:
    found = list_kernels(source, wanted)
    chosen = len(found.profiles) + found.left_out
    of = "" if chosen == found.found else f" of {found.found:,}"
    blocks: list[Block] = [heading(f"{chosen:,}{of} kernel profiles below {found.source}")]
    if found.profiles:
        blocks.append(table(found.profiles[:_SHOWN_PROFILES], _PROFILES))
        left = len(found.profiles) - _SHOWN_PROFILES + found.left_out
        if left > 0:
            blocks.append(Line(f"{left:,} older ones are not shown; --json has more."))
    notes = [f"{each.place}: {each.why}." for each in found.profiles if each.status == "unreadable"]
    fired = any(each.findings for each in found.profiles)
    return CommandResult(document=found, blocks=blocks, notes=notes, fired=fired)


_PROFILES: Mapping[TerminalColumn, Callable[[ListedProfile], Shown]] = {
    TerminalColumn("profile", folds=True): lambda each: (
        each.name if each.place in (".", each.name) else f"{each.place}: {each.name}"
    ),
    TerminalColumn("time"): lambda each: (each.recorded_at or each.changed_at or "-")[:_MINUTE].replace("T", " "),
    TerminalColumn("status"): lambda each: each.status,
    TerminalColumn("framework", drops=2): lambda each: each.framework,
    TerminalColumn("traces", right=True, drops=1): lambda each: f"{each.traces:,}",
    TerminalColumn("busy", right=True, drops=3): lambda each: (
        "-" if each.busy_share is None else f"{100 * each.busy_share:.0f} %"
    ),
    TerminalColumn("severity"): lambda each: "-" if each.severity is None else severity_cell(each.severity),
    TerminalColumn("findings", folds=True): lambda each: ", ".join(each.findings) or "-",
}
