"""A run as another tool recorded it: samples of its nodes, scalars of its steps, and what is known of the job.

A source yields a `SourceRun`. `trainguard.sources.managed` writes it in the managed layout, so that rules, reports and
commands see one kind of profile.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

ONLY_NODE = "node-1"
"""The node of a tool that names none."""

CUT = "the file ends inside a record"
"""Why the end of a killed run's file is not read; what is before it is whole."""


class Outcome(StrEnum):
    """How a run ended; the values are those of ``job.json``."""

    COMPLETED = "Completed"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class SeriesName:
    """Type, name and dimension of a series, as a line of a profile has them (docs/formats.md)."""

    type: str
    name: str
    dimension: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Values of one node at one time, epoch seconds; units are those of the series."""

    at: float
    values: Mapping[SeriesName, float]


@dataclass(frozen=True, slots=True)
class ScalarsOfStep:
    """Scalars that a run logged together, and when, epoch seconds."""

    step: int
    at: float
    values: Mapping[str, float]


@dataclass(slots=True)
class SourceRun:
    """What was read of one run.

    Attributes
    ----------
    name : str
        What the run is called; no file name and no key is made of it unchanged.
    tool : str
        Who recorded it, as people call it.
    snapshots : dict of str to list of Snapshot
        By node, in order of time.
    scalars : list of ScalarsOfStep
        In the order in which they were logged.
    started_at, ended_at : float or None
        Epoch seconds.
    outcome : Outcome or None
        None where the source does not say how the run ended: it still runs, or was killed.
    gpu_type : str or None
        The name of the GPUs.
    link : str or None
        Where the tool shows the run.
    owners : dict of str to str
        Whose the run is: ``user``, ``team`` and ``project``, as far as the tool says.
    bad : dict of str to int
        How many parts could not be read, by the reason.
    asked_s : float or None
        The distance, seconds, at which samples were asked for; None where the samples are as they were recorded.
    notes : list of str
        What people must know of how it was read, a sentence each.
    """

    name: str
    tool: str
    snapshots: dict[str, list[Snapshot]] = field(default_factory=dict)
    scalars: list[ScalarsOfStep] = field(default_factory=list)
    started_at: float | None = None
    ended_at: float | None = None
    outcome: Outcome | None = None
    gpu_type: str | None = None
    link: str | None = None
    owners: dict[str, str] = field(default_factory=dict)
    bad: dict[str, int] = field(default_factory=dict)
    asked_s: float | None = None
    notes: list[str] = field(default_factory=list)

    def refuse(self, why: str, count: int = 1) -> None:
        """Count parts that cannot be read."""
        self.bad[why] = self.bad.get(why, 0) + count

    @property
    def interval_s(self) -> float | None:
        """The median distance of a node's snapshots, seconds; None of fewer than two."""
        gaps = sorted(
            later.at - earlier.at
            for snapshots in self.snapshots.values()
            for earlier, later in itertools.pairwise(snapshots)
        )
        return gaps[len(gaps) // 2] if gaps else None
