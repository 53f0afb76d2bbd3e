"""Which settings of a deployment its jobs need: a table by the number of nodes that run at once.

`tests/scale/drain.py` simulates each row at the minute's edge against the documented limits of AWS's services.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Settings for deployments of up to so many nodes.

    Attributes
    ----------
    nodes : int
        Nodes of all jobs that run at once.
    evaluator_concurrency, evaluator_memory_mb, look_after_memory_mb, max_write_units : int
        Settings of the deployment, by their names in its context; each is the least that is enough.
    """

    nodes: int
    evaluator_concurrency: int
    evaluator_memory_mb: int
    look_after_memory_mb: int
    max_write_units: int

    @property
    def settings(self) -> dict[str, int]:
        """The settings by name."""
        return {
            "evaluator_concurrency": self.evaluator_concurrency,
            "evaluator_memory_mb": self.evaluator_memory_mb,
            "look_after_memory_mb": self.look_after_memory_mb,
            "max_write_units": self.max_write_units,
        }


SIZES = (
    Size(
        nodes=1_000,
        evaluator_concurrency=20,
        evaluator_memory_mb=1_024,
        look_after_memory_mb=512,
        max_write_units=2_000,
    ),
    Size(
        nodes=2_000,
        evaluator_concurrency=40,
        evaluator_memory_mb=1_024,
        look_after_memory_mb=1_024,
        max_write_units=2_000,
    ),
    Size(
        nodes=5_000,
        evaluator_concurrency=80,
        evaluator_memory_mb=1_024,
        look_after_memory_mb=1_769,
        max_write_units=4_000,
    ),
    Size(
        nodes=10_000,
        evaluator_concurrency=120,
        evaluator_memory_mb=1_024,
        look_after_memory_mb=1_769,
        max_write_units=4_000,
    ),
)
"""From few nodes to many; the first row is the deployment's defaults."""


def size_for(nodes: int) -> Size | None:
    """Return the first row that is enough for so many nodes; None for more than the table has."""
    return next((size for size in SIZES if nodes <= size.nodes), None)
