"""Episodes of findings as marks on the time lines: from the onset on, of which rule, and where."""

from collections.abc import Sequence

from trainguard.finding import EpisodeEntry
from trainguard.report.document import FindingEntry
from trainguard.timeline.series import Mark
from trainguard.timestamps import epoch_of

MAX_MARKS = 256
TEXT_LENGTH = 240


def marks(findings: Sequence[FindingEntry]) -> list[Mark]:
    """Return the episodes in order of time; of more than MAX_MARKS, the newest of each finding come first."""
    newest_first = [
        (place, mark)
        for finding in findings
        for place, mark in enumerate(_mark(finding, episode) for episode in reversed(finding.episodes))
    ]
    kept = sorted(newest_first, key=lambda each: each[0])[:MAX_MARKS]
    return sorted((mark for _, mark in kept), key=lambda mark: (mark.at, mark.rule, mark.node or "", mark.gpu or ""))


def unmarked(findings: Sequence[FindingEntry]) -> list[str]:
    """Say how many episodes have no mark."""
    known = sum(len(finding.episodes) for finding in findings)
    missing = max(known - MAX_MARKS, 0) + sum(finding.earlier_episodes for finding in findings)
    total = known + sum(finding.earlier_episodes for finding in findings)
    return [f"{missing:,} of {total:,} episodes are not marked: of each finding, the newest are."] if missing else []


def _mark(finding: FindingEntry, episode: EpisodeEntry) -> Mark:
    reason = finding.reason
    return Mark(
        at=epoch_of(episode.start),
        end=None if episode.end is None else epoch_of(episode.end),
        rule=finding.rule,
        severity=finding.severity,
        node=episode.node,
        gpu=episode.gpus[0] if episode.node is not None and len(episode.gpus) == 1 else None,
        text=reason if len(reason) <= TEXT_LENGTH else f"{reason[: TEXT_LENGTH - 1]}…",
    )
