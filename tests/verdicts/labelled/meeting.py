"""Which episodes of a finding are about a planted fault, taken together as one."""

from dataclasses import dataclass

from tests.verdicts.labelled.reported import Episode, Finding


@dataclass(frozen=True, slots=True)
class Span:
    """When something held, epoch seconds; ``within_s`` is how far what is said of it may be off."""

    begin: float
    end: float
    within_s: float

    def shared_s(self, episode: Episode) -> float:
        """Return for how long an episode meets the span; it is negative by its distance where it does not."""
        begin = self.begin if episode.start is None else episode.start
        end = self.end if episode.end is None else episode.end
        return min(self.end, end) - max(self.begin, begin)

    def holds(self, episode: Episode) -> bool:
        """Return whether most of an episode lies in the span; one without end lasts to the span's at least."""
        begin = self.begin if episode.start is None else episode.start
        end = max(begin, self.end) if episode.end is None else episode.end
        wide = min(self.end + self.within_s, end) - max(self.begin - self.within_s, begin)
        return wide >= 0.5 * (end - begin) and wide >= 0.0


def meeting(finding: Finding, span: Span) -> Episode | None:
    """Return the finding's episodes about a fault of that span as one: where they all were, what they cost together.

    Where no episode lies in the span it is the one that meets it the longest; None where none does. Of a report that
    does not tell episodes it is what is known of the last one, if that did not begin before the span.
    """
    if not finding.told:
        last = finding.episodes[0]
        return last if last.start is None or last.start >= span.begin - span.within_s else None
    about = [episode for episode in finding.episodes if span.holds(episode)]
    if about:
        return _together(finding, about)
    longest = max(finding.episodes, key=span.shared_s)
    return longest if span.shared_s(longest) > 0.0 else None


def _together(finding: Finding, episodes: list[Episode]) -> Episode:
    """Return episodes as one; their cost is the finding's where theirs is not told and they are all that it has."""
    starts = [episode.start for episode in episodes if episode.start is not None]
    ends = [episode.end for episode in episodes if episode.end is not None]
    costs = [episode.lost for episode in episodes if episode.lost is not None]
    lost = sum(costs) if len(costs) == len(episodes) else None
    if lost is None and len(episodes) == len(finding.episodes):
        lost = finding.lost
    return Episode(
        start=min(starts, default=None),
        end=max(ends) if len(ends) == len(episodes) else None,
        nodes=tuple(dict.fromkeys(node for episode in episodes for node in episode.nodes)),
        gpus=tuple(dict.fromkeys(gpu for episode in episodes for gpu in episode.gpus)),
        lost=lost,
    )
