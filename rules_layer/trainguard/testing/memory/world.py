"""All twins together."""

from trainguard.core.ports import Services
from trainguard.testing.memory.node_states import MemoryJobs, MemoryNodeStates, MemoryRuleStates
from trainguard.testing.memory.services import (
    MemoryExecutions,
    MemoryJournal,
    MemoryProfileObjects,
    MemorySettingDocuments,
    MemoryTaskQueue,
    MemoryTrainingJobs,
)
from trainguard.testing.memory.twin import Calls


class MemoryWorld:
    """A deployment's stores and services in memory.

    Examples
    --------
    >>> world = MemoryWorld()
    >>> world.objects.now = 1_700_000_000.0
    >>> world.objects.put("profiles", "a.json", b"{}", "application/json")
    >>> world.services.objects.get("profiles", "a.json", max_bytes=10)
    b'{}'
    """

    def __init__(self, faults: Calls | None = None) -> None:
        self.faults = faults or Calls()
        self.jobs = MemoryJobs(faults=self.faults)
        self.nodes = MemoryNodeStates(faults=self.faults)
        self.rows = MemoryRuleStates(faults=self.faults)
        self.objects = MemoryProfileObjects(faults=self.faults)
        self.executions = MemoryExecutions(faults=self.faults)
        self.reports = MemoryExecutions(faults=self.faults)
        self.captures = MemoryExecutions(faults=self.faults)
        self.training_jobs = MemoryTrainingJobs(faults=self.faults)
        self.tasks = MemoryTaskQueue(faults=self.faults)
        self.journal = MemoryJournal()
        self.settings = MemorySettingDocuments(faults=self.faults)

    @property
    def services(self) -> Services:
        return Services(
            jobs=self.jobs,
            nodes=self.nodes,
            rows=self.rows,
            objects=self.objects,
            executions=self.executions,
            reports=self.reports,
            captures=self.captures,
            training_jobs=self.training_jobs,
            tasks=self.tasks,
            journal=self.journal,
            settings=self.settings,
        )
