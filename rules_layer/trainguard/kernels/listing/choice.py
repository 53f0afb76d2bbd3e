"""Profiles of a list by name, time, status, framework and finding."""

from collections.abc import Iterable
from dataclasses import dataclass

from trainguard.kernels.listing.entries import ListedProfile
from trainguard.timestamps import epoch_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which profiles; what is None or empty excludes none. Texts are compared without case.

    Attributes
    ----------
    name : str
        Part of a profile's name or place.
    since : float or None
        Recorded, or else written, at this time or later; epoch seconds.
    status, framework : str
        Words of `ListedProfile`.
    finding : str
        A rule, with or without ``kernels/``.
    """

    name: str = ""
    since: float | None = None
    status: str = ""
    framework: str = ""
    finding: str = ""

    def has(self, profile: ListedProfile) -> bool:
        """Whether a profile is wanted."""
        rule = self.finding.lower().rpartition("/")[2]
        return (
            self.name.lower() in f"{profile.place}/{profile.name}".lower()
            and (self.since is None or _time(profile) >= self.since)
            and self.status.lower() in ("", profile.status)
            and (not self.framework or self.framework.lower() in profile.framework.split(", "))
            and (not rule or rule in (each.lower() for each in profile.findings))
        )


def newest_first(profiles: Iterable[ListedProfile]) -> list[ListedProfile]:
    """Return profiles by time, those without one last."""
    return sorted(profiles, key=lambda each: (-_time(each), each.place, each.name))


def _time(profile: ListedProfile) -> float:
    at = profile.recorded_at or profile.changed_at
    return 0.0 if at is None else epoch_of(at)
