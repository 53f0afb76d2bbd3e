"""Input of the model of operating costs: the job, the functions' memory, and the sizes of items.

Sizes of items of NodeState are measured: `python -m tests.scale.replay 1 1440` prints the state of a node with 8 GPUs
and 96 cores that is sampled at 500 ms, 9,517 bytes after 24 hours; a GPU has some 640 bytes.
"""

import math
from dataclasses import dataclass
from typing import Literal

from trainguard.core.evaluation_interval import EVALUATION_EVERY_S

MINUTES_AN_HOUR = 60
HOURS_A_MONTH = 730.0
# Messages that a request to SQS takes or deletes.
REQUEST_BATCH = 10
# As in an instance with 8 GPUs and 96 cores.
CORES_A_GPU = 12

# While a node starts, and for 15 minutes after its first work, each minute is evaluated.
EARLY_MINUTES = 17

_BYTES_A_LINE = 121
_LINES_OF_A_NODE = 3
_BYTES_A_FRAMEWORK_OBJECT = 40_000
# By how much gzip shrinks what the collector writes: recorded system metrics 26 times, random values 16; timelines 9.
_PACKED, _PACKED_FRAMEWORK = 20, 8
# A collector writes its status every three minutes.
_STATUSES_AN_HOUR = 20
# A job is evaluated in every third run of the scheduler while no rule is near a change.
_LOOKS_AN_HOUR = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A job whose profile is watched; a node has twelve cores for each of ``gpus``.

    ``interval_ms`` is of system metrics. ``saved_steps`` an hour are the first worker's. ``existing_bucket`` is not the
    stack's own; ``profile_notifications`` says whether EventBridge bills its events. ``profiler`` writes the profile:
    the collector compresses it. ``traces_gb`` of kernel traces an hour lie in S3, as gzip. ``endpoints`` are interface
    endpoints of the functions' network, each zone counted. ``webhook`` says whether alerts are posted to one;
    ``ops_items``, one a broken GPU, are opened in a month. ``canary_job``: `canary_image` is set.
    """

    nodes: int = 1
    hours: float = 1.0
    gpus: int = 8
    interval_ms: int = 500
    framework: bool = False
    saved_steps: float = 0.0
    evaluation_every_s: float = EVALUATION_EVERY_S
    retention_days: int = 30
    existing_bucket: bool = False
    profile_notifications: Literal["eventbridge", "queue"] = "eventbridge"
    profiler: Literal["collector", "sagemaker"] = "collector"
    traces_gb: float = 0.0
    endpoints: int = 0
    customer_key: bool = False
    data_events: bool = False
    webhook: bool = False
    ops_items: float = 0.0
    canary_job: bool = False

    @property
    def sends_events(self) -> bool:
        return self.existing_bucket and self.profile_notifications == "eventbridge"

    @property
    def lines(self) -> float:
        """Lines of one object of system metrics: two a core, two a GPU and some of the node, at every sampling."""
        series = 2 * CORES_A_GPU * max(self.gpus, 1) + 2 * self.gpus + _LINES_OF_A_NODE
        return series * 60_000 / self.interval_ms

    @property
    def framework_objects(self) -> int:
        return max(self.gpus, 1) if self.framework else 0

    @property
    def objects(self) -> int:
        return self.nodes * MINUTES_AN_HOUR * (1 + self.framework_objects)

    @property
    def evaluations(self) -> float:
        return 3_600.0 / self.evaluation_every_s

    @property
    def reconciliations(self) -> float:
        return MINUTES_AN_HOUR if self.framework or self.evaluations >= MINUTES_AN_HOUR else _LOOKS_AN_HOUR

    @property
    def early_evaluations(self) -> float:
        """Evaluations of one node at a job's start beyond those of `evaluations`: then each minute is evaluated."""
        early_h = min(self.hours, EARLY_MINUTES / MINUTES_AN_HOUR)
        return early_h * max(MINUTES_AN_HOUR - self.evaluations, 0.0)

    @property
    def early_reconciliations(self) -> float:
        """Reconciliations at a job's start beyond those of `reconciliations`."""
        return min(self.hours, EARLY_MINUTES / MINUTES_AN_HOUR) * max(MINUTES_AN_HOUR - self.reconciliations, 0.0)

    @property
    def profile_bytes(self) -> float:
        packed, of_framework = (_PACKED, _PACKED_FRAMEWORK) if self.profiler == "collector" else (1, 1)
        minute = self.lines * _BYTES_A_LINE / packed
        minute += self.framework_objects * _BYTES_A_FRAMEWORK_OBJECT / of_framework
        return self.nodes * MINUTES_AN_HOUR * minute

    @property
    def statuses(self) -> int:
        """Status objects an hour, which the collector writes beside the profile."""
        return self.nodes * _STATUSES_AN_HOUR if self.profiler == "collector" else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionMemory:
    """The memory of functions in MiB, by their names in the deployment's context; the defaults are those there."""

    evaluator_memory_mb: int = 1_024
    scheduler_memory_mb: int = 512
    reconcile_memory_mb: int = 512
    report_memory_mb: int = 2_048


DEFAULT_MEMORY = FunctionMemory()

# Written by a write unit.
UNIT_BYTES = 1_024

# Read by a read unit, consistently.
READ_BYTES = 4_096

STATE_BYTES, STATE_BYTES_A_GPU = 4_440, 640
_BESIDE_STATE_BYTES = 200

_OWN_BYTES, _OWN_BYTES_A_NODE = 650, 4


def node_bytes(gpus: int) -> int:
    return STATE_BYTES + STATE_BYTES_A_GPU * gpus + _BESIDE_STATE_BYTES


def node_units(gpus: int) -> int:
    return math.ceil(node_bytes(gpus) / UNIT_BYTES)


def own_bytes(nodes: int) -> int:
    return _OWN_BYTES + _OWN_BYTES_A_NODE * nodes


def own_units(nodes: int) -> int:
    return math.ceil(own_bytes(nodes) / UNIT_BYTES)
