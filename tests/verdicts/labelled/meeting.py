"""Which episodes of a finding are about a planted fault, taken together as one."""

from dataclasses import dataclass

from tests.verdicts.labelled.reported import Episode, Finding


@dataclass(frozen=True, slots=True)
class Span:
    """When something held, epoch seconds; ``within_s`` is how far what is said about it may be off."""

    begin: float
    end: float
    within_s: float

    def shared_s(self, episode: Episode) -> float:
        """Return for how long an episode meets the span; it is negative by its distance where it does not."""
        end = self.end if episode.end is None else episode.end
        return min(self.end, end) - max(self.begin, episode.start)

    def holds(self, episode: Episode) -> bool:
        """Return whether most of an episode lies in the span; one without end lasts to the span's at least."""
        end = max(episode.start, self.end) if episode.end is None else episode.end
        wide = min(self.end + self.within_s, end) - max(self.begin - self.within_s, episode.start)
        return wide >= 0.5 * (end - episode.start) and wide >= 0.0


def meeting(finding: Finding, span: Span) -> Episode | None:
    """Return the finding's episodes about a fault of that span as one: where they all were, what they lost together.

    Where no episode lies in the span it is the one that meets it the longest; None where none does.
    """
    about = [episode for episode in finding.episodes if span.holds(episode)]
    if about:
        return _together(about)
    longest = max(finding.episodes, key=span.shared_s, default=None)
    return longest if longest is not None and span.shared_s(longest) > 0.0 else None


def _together(episodes: list[Episode]) -> Episode:
    ends = [episode.end for episode in episodes if episode.end is not None]
    losses = [episode.lost_s for episode in episodes if episode.lost_s is not None]
    return Episode(
        start=min(episode.start for episode in episodes),
        end=max(ends) if len(ends) == len(episodes) else None,
        nodes=tuple(dict.fromkeys(node for episode in episodes for node in episode.nodes)),
        gpus=tuple(dict.fromkeys(gpu for episode in episodes for gpu in episode.gpus)),
        lost_s=sum(losses) if len(losses) == len(episodes) else None,
    )
