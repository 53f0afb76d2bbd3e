"""What a fact is recomputed from: the raw job, the finding that has it, and the rule's parameters."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tests.claims.raw import Floats, Node, RawJob, read_job
from tests.claims.work import CLOCK_S, Work, within, work_of

Fact: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Range:
    """A value is true from ``least`` to ``most``, in the fact's unit."""

    least: float
    most: float


# What a fact should say; a range where the raw data do not say it exactly.
Expected: TypeAlias = float | str | Range


@dataclass
class Raw:
    """A raw job with what is computed of it once."""

    job: RawJob
    _work: dict[str, Work] = field(default_factory=dict)
    cached: dict[Any, Any] = field(default_factory=dict)

    def work(self, node: Node) -> Work:
        """Return which points of a node are kept."""
        if node.name not in self._work:
            self._work[node.name] = work_of(node)
        return self._work[node.name]

    def work_until(self, node: Node, until: float) -> Work:
        """Return which points of a node are kept, as it was known at ``until``, epoch seconds, to a millisecond."""
        key = ("work until", node.name, until)
        if key not in self.cached:
            self.cached[key] = work_of(node, until + CLOCK_S)
        found: Work = self.cached[key]
        return found

    def kept(self, node: Node, gpus: Iterable[str], start: float | None, end: float | None) -> Floats:
        """Return utilization at the kept points from ``start`` to ``end``, of all of ``gpus``, without NaN."""
        points = node.points
        columns = [node.gpus.index(gpu) for gpu in gpus]
        work = self.work(node)
        kept = points.seen if work.began is None else work.kept  # a node without work was at nothing
        values = points.gpus[kept & within(points.times, start, end)][:, columns]
        found: Floats = values[~np.isnan(values)]
        return found


def raw_of(folder: Path) -> Raw:
    """Return what was recorded of a job; raises OSError when there is no such folder."""
    return Raw(read_job(folder))


@dataclass(frozen=True)
class Context:
    """A finding of a job, as report.json has it; ``parameters`` are its rule's."""

    raw: Raw
    finding: dict[str, Any]
    parameters: dict[str, Any]

    @property
    def rule(self) -> str:
        """The rule's name."""
        return str(self.finding["rule"])

    def node(self, fact: Fact) -> Node:
        """Return the node that a fact is of; the only one where it names none."""
        nodes = self.raw.job.nodes
        name = fact.get("node")
        return nodes[name] if name is not None else next(iter(nodes.values()))

    def first(self, name: str) -> Fact | None:
        """Return the first fact of a name."""
        return next((fact for fact in self.finding["facts"] if fact["name"] == name), None)

    def gpus(self, fact: Fact) -> list[str]:
        """Return the GPUs that a fact is of: its device, else all of its node."""
        return [fact["device"]] if fact.get("device") else self.node(fact).gpus


Recompute: TypeAlias = Callable[[Context, Fact], Expected]


def gaps_of(node: Node) -> list[tuple[float, float]]:
    """Return the times in which a node wrote nothing, from its last sample before them to the next one."""
    times = np.unique(np.concatenate([series.times for series in node.series.values()]))
    distances = np.diff(times)
    places = np.flatnonzero(distances > 2.0 * node.interval_s)
    return [(float(times[place]), float(times[place + 1])) for place in places]


def mean_of(values: Floats) -> float:
    """Return the mean; NaN of nothing."""
    return float(values.mean()) if values.size else float("nan")


def samples(context: Context, fact: Fact, metric: str = "GPUUtilization", gpus: Iterable[str] | None = None) -> Floats:
    """Return all samples of a metric in a fact's time, of its device or of all of its node."""
    series = context.node(fact).of(metric)
    chosen = context.gpus(fact) if gpus is None else gpus
    parts = [series[gpu].between(fact.get("from"), fact.get("to")) for gpu in chosen if gpu in series]
    return np.concatenate([*parts, np.zeros(0)])
