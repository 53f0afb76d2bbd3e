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

    def __init__(self) -> None:
        self.jobs = MemoryJobs()
        self.nodes = MemoryNodeStates()
        self.rows = MemoryRuleStates()
        self.objects = MemoryProfileObjects()
        self.executions = MemoryExecutions()
        self.reports = MemoryExecutions()
        self.captures = MemoryExecutions()
        self.training_jobs = MemoryTrainingJobs()
        self.tasks = MemoryTaskQueue()
        self.journal = MemoryJournal()
        self.settings = MemorySettingDocuments()

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
