"""Settings of a deployment by number of nodes; `tests/scale/drain.py` simulates each row against AWS's limits."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Least settings, by their names in the deployment's context, for up to so many nodes of all running jobs."""

    nodes: int
    evaluator_concurrency: int
    evaluator_memory_mb: int = 1_024
    reconcile_memory_mb: int
    max_write_units: int

    @property
    def settings(self) -> dict[str, int]:
        return {name: value for name, value in asdict(self).items() if name != "nodes"}


# From few nodes to many; the first row is the deployment's defaults.
SIZES = (
    Size(nodes=1_000, evaluator_concurrency=20, reconcile_memory_mb=512, max_write_units=2_000),
    Size(nodes=2_000, evaluator_concurrency=40, reconcile_memory_mb=1_024, max_write_units=2_000),
    Size(nodes=5_000, evaluator_concurrency=80, reconcile_memory_mb=1_769, max_write_units=4_000),
    Size(nodes=10_000, evaluator_concurrency=120, reconcile_memory_mb=1_769, max_write_units=4_000),
)


def size_for(nodes: int) -> Size | None:
    """Return the first row that is enough for so many nodes; None for more than the table has."""
    return next((size for size in SIZES if nodes <= size.nodes), None)
