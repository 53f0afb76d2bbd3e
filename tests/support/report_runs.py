"""The report machine as it is deployed, run in memory over the functions' own code on the in-memory stores."""

import json
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from infra.constructs.report_machine import definition
from tests.infra.states_language import Ending, Execution, TaskError
from tests.support.delivery import Network
from tests.support.faults import Crash
from tests.support.memory import MemoryWorld
from tests.support.small_job import BUCKET, JOB, describe, uploads
from trainguard.core.errors import TrainGuardError
from trainguard.core.layout import ProfileRoot
from trainguard.core.records import JobStatus
from trainguard.stack.report.build import StackReports
from trainguard.stack.report.digest import digest_item
from trainguard.stack.report.keys import Listing
from trainguard.stack.report.parts import READING_S, DigestItem
from trainguard.stack.report.plan import ReportPlanner

NOW = 1_795_252_000.0
FOLDER = ProfileRoot("", JOB).report


@dataclass
class ReportRun:
    """One execution over a world, at the job's end or on request.

    ``looks`` is how often a digest has time left, ``lost`` names nodes whose digest always fails,
    ``late`` nodes whose turn comes after the time for reading; ``damaged`` spoils the list of items in the end; a plan
    that is ``hurried`` lists little in a call.
    """

    world: MemoryWorld
    name: str = "report-1"
    looks: int = 1_000_000
    at_end: bool = True
    execution: Execution | None = None
    lost: set[str] = field(default_factory=set)
    late: set[str] = field(default_factory=set)
    damaged: bool = False
    hurried: bool = False

    def run(self) -> Ending:
        """Run the machine from start to end."""
        names = {
            "PlanReport": self.plan,
            "DigestProfile": self.digest,
            "DigestProfileOfMany": self.digest,
            "BuildReport": self.build,
            "BuildFromState": self.build,
            "DropParts": self.build,
        }
        tasks = {name: self._function(call) for name, call in names.items()}
        self.execution = Execution(definition(), tasks | {"DigestMany": self._items}, name=self.name)
        return self.execution.run({"kind": "end", "job": JOB} if self.at_end else {"job": JOB})

    def plan(self, event: dict[str, Any]) -> Any:
        """Do what `plan_report` does."""
        planner = ReportPlanner(jobs=self.world.jobs, nodes=self.world.nodes, objects=self.world.objects)
        begun = event.get("listing")
        listing = None if begun is None else msgspec.convert(begun, Listing)
        planned = planner.plan(event["job"], event["run"], now=NOW, has_time=lambda: not self.hurried, listing=listing)
        return msgspec.to_builtins(planned)

    def digest(self, event: dict[str, Any]) -> Any:
        """Do what `digest_profile` does; a node in ``lost`` always fails."""
        item = msgspec.convert(event, DigestItem)
        if item.node in self.lost:
            raise MemoryError(item.node)
        looks = iter(range(self.looks))
        now = NOW + (READING_S + 1.0 if item.node in self.late else 0.0)
        digested = digest_item(self.world.objects, item, now=now, has_time=lambda: next(looks, None) is not None)
        return msgspec.to_builtins(digested)

    def build(self, event: dict[str, Any]) -> Any:
        """Do what `build_report` does for this machine."""
        reports = StackReports(jobs=self.world.jobs, nodes=self.world.nodes, objects=self.world.objects)
        if event.get("drop"):
            return {"dropped": reports.drop(event["job"], event["run"], now=NOW)}
        if "run" in event:
            if self.damaged:
                items = f"{FOLDER}parts/{self.name}/items.json"
                self.world.objects.put(BUCKET, items, b"damaged", "application/json")
            return {"reportUri": reports.full(event["job"], event["run"], now=NOW)[0]}
        return {"reportUri": reports.from_state(event["job"], now=NOW)[0]}

    def calls(self, state: str) -> int:
        """Return how often a task was attempted, by few items or by many."""
        assert self.execution is not None
        return sum(len(self.execution.arguments_of(name)) for name in (state, f"{state}OfMany"))

    def _items(self, arguments: dict[str, str]) -> Any:
        return msgspec.json.decode(self.world.objects.get(arguments["Bucket"], arguments["Key"], 10_000_000))

    def _function(self, call: Any) -> Any:
        def invoke(arguments: dict[str, Any]) -> Any:
            try:
                return {"Payload": json.loads(json.dumps(call(arguments["Payload"])))}
            except (TrainGuardError, MemoryError, Crash) as fault:
                raise TaskError(type(fault).__name__, str(fault)) from fault

        return invoke


def finished_world() -> MemoryWorld:
    """Return the world of the small job, which has ended and was evaluated to its end."""
    network = Network()
    *profile, end = uploads()
    for upload in (*profile, end):
        if upload is end:
            network.world.training_jobs.set(replace(describe(status=JobStatus.COMPLETED), ended_at=end.at))
        network.put(upload)
        network.announce(upload, max(upload.at, network.now))
        network.run_until(upload.at, batch_s=20.0)
    network.run_until(network.now + 1_000.0, batch_s=5.0)
    assert not network.job().active
    return network.world
