"""What a page of kernel profiles does not show, and why."""

from collections.abc import Sequence

from trainguard.kernels.document import KernelProfiles, RankProfile
from trainguard.kernels.timeline.build import DEEPEST, Timeline
from trainguard.kernels.words import are, counted
from trainguard.report.html.kernels.island import rank_name
from trainguard.report.html.kernels.text import nanos

MOST_FILES = 20


def missing_lines(document: KernelProfiles) -> list[tuple[str, str]]:
    """Return pairs of a trace and what it lacks, what is damaged in it, or why it could not be read."""
    ranks = document.ranks
    found = [(rank_name(rank), line) for rank in ranks for line in (*rank.quality.missing, *rank.quality.damaged)]
    lines = _grouped(found, len(ranks))
    unread = [(name, f"It was not read: {reason}.") for name, reason in document.unread.items()]
    if len(unread) > MOST_FILES:
        unread = [
            *unread[:MOST_FILES],
            (f"{len(unread) - MOST_FILES:,} more files", "They were not read; kernels.json says why."),
        ]
    joined = document.ranks_left_out
    more = [(f"{joined:,} more ranks", "They are in the table of ranks alone.")] if joined else []
    return [*unread, *more, *lines]


def _grouped(found: Sequence[tuple[str, str]], ranks: int) -> list[tuple[str, str]]:
    """Say once what several ranks lack."""
    by_line: dict[str, list[str]] = {}
    for name, line in found:
        by_line.setdefault(line, []).append(name)
    lines = []
    for line, names in by_line.items():
        who = names[0] if len(names) == 1 else "all ranks" if len(names) == ranks else counted(len(names), "rank")
        lines.append((who, f"{line[:1].upper()}{line[1:]}."))
    return (
        lines[:MOST_FILES] if len(lines) <= MOST_FILES else [*lines[:MOST_FILES], ("Others", "kernels.json has them.")]
    )


def timeline_notes(document: KernelProfiles, drawn: Sequence[tuple[RankProfile, Timeline]], omitted: int) -> list[str]:
    """Return sentences on what the timeline leaves out or shows coarsely."""
    notes = []
    left = len(document.ranks) - len(drawn)
    if left:
        shown = f"The timeline has {counted(len(drawn), 'rank')}; " if drawn else ""
        notes.append(f"{shown}{are(left, 'rank')} not drawn. `trainguard kernels` with one trace draws that rank.")
    for rank, timeline in drawn:
        who = f"{rank_name(rank)}: " if len(drawn) > 1 else ""
        notes += [f"{who}{line}" for line in _of(timeline)]
    if omitted:
        notes.append(
            f"{omitted:,} names are left out, as all together would be too large; kernels.json has those of kernels."
        )
    return notes


def _of(timeline: Timeline) -> list[str]:
    left, notes = timeline.left_out, []
    if left.joined:
        held = sum(end - start for start, end in timeline.detail)
        notes.append(
            f"every event of {nanos(held)} is drawn, the slowest step first. "
            f"Elsewhere {left.joined:,} short events are drawn as {left.joins:,} rectangles."
        )
    if left.lanes:
        notes.append(f"{are(left.lanes, 'lane')} left out, with the least time and {counted(left.lane_rows, 'event')}.")
    if left.deep:
        notes.append(f"{are(left.deep, 'event')} left out, inside of more than {DEEPEST} others.")
    if left.outside:
        notes.append(f"{are(left.outside, 'event')} left out, before or after the window.")
    return notes
