"""``trainguard kernels --list``: the kernel profiles below a place, by name, time, status, framework and finding."""

from trainguard.cli.output.blocks import Block, Column, Grid, Heading, Line, Shown, severity_cell
from trainguard.cli.output.result import CommandResult, print_result
from trainguard.kernels.listing.choice import Wanted
from trainguard.kernels.listing.entries import KernelList, ListedProfile
from trainguard.local.kernel_list import list_kernels

_SHOWN = 50
_MINUTE = len("2026-11-23T15:04")


def list_command(source: str, wanted: Wanted, *, as_json: bool, fail_on_fire: bool) -> int:
    """List the kernel profiles of a place; return the exit code."""
    return print_result(lambda: _result(source, wanted), as_json=as_json, fail_on_fire=fail_on_fire)


def _result(source: str, wanted: Wanted) -> CommandResult:
    found = list_kernels(source, wanted)
    blocks: list[Block] = [Heading(_heading(found)), *_table(found)]
    notes = [f"{each.place}: {each.why}." for each in found.profiles if each.status == "unreadable"]
    fired = any(each.findings for each in found.profiles)
    return CommandResult(document=found, blocks=blocks, notes=notes, fired=fired)


def _heading(found: KernelList) -> str:
    chosen = len(found.profiles) + found.left_out
    of = "" if chosen == found.found else f" of {found.found:,}"
    return f"{chosen:,}{of} kernel profiles below {found.source}"


def _table(found: KernelList) -> list[Block]:
    if not found.profiles:
        return []
    columns = (
        Column("profile", folds=True),
        Column("time"),
        Column("status"),
        Column("framework", drops=2),
        Column("traces", right=True, drops=1),
        Column("busy", right=True, drops=3),
        Column("severity"),
        Column("findings", folds=True),
    )
    blocks: list[Block] = [Grid(columns, [_row(each) for each in found.profiles[:_SHOWN]])]
    left = len(found.profiles) - _SHOWN + found.left_out
    return [*blocks, Line(f"{left:,} older ones are not shown; --json has more.")] if left > 0 else blocks


def _row(profile: ListedProfile) -> list[Shown]:
    time = profile.recorded_at or profile.changed_at or "-"
    where = profile.name if profile.place in (".", profile.name) else f"{profile.place}: {profile.name}"
    return [
        where,
        time[:_MINUTE].replace("T", " "),
        profile.status,
        profile.framework,
        f"{profile.traces:,}",
        "-" if profile.busy_share is None else f"{100 * profile.busy_share:.0f} %",
        "-" if profile.severity is None else severity_cell(profile.severity),
        ", ".join(profile.findings) or "-",
    ]
