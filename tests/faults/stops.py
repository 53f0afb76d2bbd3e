"""The fire's way after its execution has started: the row is marked, the stop decided, counted and made."""

from dataclasses import dataclass, field, replace
from typing import Any

from tests.faults.jobs import START
from tests.support.memory import MemoryStopBudget, MemoryWorld
from trainguard.core.errors import PortUnavailableError
from trainguard.stack.actions.request import StopCase
from trainguard.stack.actions.stop import StopPreconditions
from trainguard.stack.actions.stop_resources import StopServices, decide_within_stop_rate
from trainguard.stack.actions.stop_switch import StopSwitches

LIMIT = 1
ENABLED = StopSwitches("enabled")


@dataclass
class FirePath:
    """Does what the state machine does with a fire; ``made`` are the stops: (execution, creation of what it stopped).

    ``another`` is how the job's name was given away before the decision: 0 to a job created later, 1 to one of another
    account; None: it was not. ``hour`` are the jobs whose stops the last hour has had.
    """

    world: MemoryWorld
    another: int | None = None
    made: list[tuple[str, str, float | None]] = field(default_factory=list)
    hour: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.budget = MemoryStopBudget(faults=self.world.faults)

    def take_all(self, now: float) -> None:
        """Let other jobs have all stops of this hour."""
        for number in range(LIMIT):
            assert self.budget.take(f"other-{number}", f"other-{number}", now=now, limit=LIMIT)
            self.hour.add(f"other-{number}")

    def run(self, name: str, payload: dict[str, Any], now: float) -> None:
        """Handle one fire; raises where a task of the state machine is to be tried again."""
        job, rule = payload["job"], payload["rule"]
        rows = self.world.rows
        stored = rows.load(job, rule)
        if stored is None:
            raise PortUnavailableError("RuleStates", "load", "the scheduler has still to write the row")
        rows.record(replace(stored, fire_id=payload["fireId"]))
        case = StopCase.read(payload)
        known = StopPreconditions.read(case, self.world.jobs, self.world.rows)
        description = self.world.training_jobs.describe(job)
        if description is not None and self.another is not None:
            changed = {"created_at": START + 900.0} if self.another == 0 else {"arn": f"{description.arn}-other"}
            description = replace(description, **changed)
        services = StopServices(lambda _: description, {}, lambda: ENABLED, frozenset())
        if not decide_within_stop_rate(case, services, self.budget, LIMIT, known=known, now=now)[0].stop:
            return
        assert description is not None
        self.hour.add(case.identity)
        self.made.append((name, description.arn, description.created_at))
