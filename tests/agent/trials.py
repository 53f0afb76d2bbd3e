"""A trial of the way from a fire to a cluster's agent: people and machines interfere at random, by a seed."""

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import msgspec

from tests.support.faults import Faults
from tests.support.fires import fire_of
from tests.support.memory import MemoryStopBudget
from tests.support.workload_cluster import Died, MemoryCluster, MemoryDesk
from trainguard.aws.stop_calls import AwsStopCalls
from trainguard.core.brakes import NO_BRAKES, Braked, BrakeList, new_brake
from trainguard.core.errors import PortUnavailableError
from trainguard.core.finding import Finding
from trainguard.core.records import JobRecord, RuleRow, Status
from trainguard.stack.actions.cluster_agents import resource_states
from trainguard.stack.actions.fire_row import Recorded
from trainguard.stack.actions.stop import StopPreconditions
from trainguard.stack.actions.stop_job import carry_out
from trainguard.stack.actions.stop_resources import ResourceDecision, StopServices, decide_within_stop_rate
from trainguard.stack.actions.stop_switch import StopSwitches
from trainguard_collector.agent.carrying_out import Agent

if TYPE_CHECKING:
    from trainguard.stack.actions.request import StopResult

START = 1_800_000_000.0
JOB, RULE, RESOURCE = "train-17", "LowGPUUtilization", "job/team-a/train-17"
RECORD = JobRecord(JOB, f"unknown:{JOB}", "profiles", "", started_at=START, resources=(f"workload/prod/{RESOURCE}",))
STOP_POLL_S, AGENT_POLL_S = 10.0, 15.0
# A clock of the agent is AWS's, to the second.
CLOCK_S = 1.0


class Rows:
    """Takes every record of a stop."""

    def record_decision(self, *_: Any, **__: Any) -> Recorded:
        return "written"

    def record_stop(self, *_: Any, **__: Any) -> None:
        return


class Trial:
    """Plays a seed. ``wrong`` says what must not be, None where all is right; ``faults`` switches all faults off."""

    def __init__(self, seed: int, *, faults: bool = True) -> None:
        self.chance = random.Random(seed)
        self.now = START - 30.0
        self.brakes = NO_BRAKES
        self.atomic = self.chance.random() < 0.6
        action = "suspend" if self.atomic else self.chance.choice(["requeue", "cancel"])
        self.desk = MemoryDesk(switches=self._switches)
        self.cluster = MemoryCluster(RESOURCE, action, JOB, lambda: self.now, atomic=self.atomic)
        self.faulty = faults
        self._rate = self.chance.choice([0.0, 0.02, 0.2]) if faults else 0.0
        self.desk.fault = self.cluster.fault = self._fault
        self.skew_s = self.chance.uniform(-CLOCK_S, CLOCK_S) if faults else 0.0
        self._agent = self._restarted()
        self._opted: list[str] = []
        self._budget = MemoryStopBudget(faults=Faults())
        self.results: dict[str, StopResult] = {}
        self.expires: dict[str, float] = {}
        self.forbidden: list[str] = []
        if faults and self.chance.random() < 0.35:
            self.cluster.change(allowed="")

    def play(self) -> None:
        """Let one or two fires come, each with its warning, and everybody interfere in the meantime."""
        self.now = START
        fires = self.chance.choice([1, 1, 2]) if self.faulty else 1
        for number in range(fires):
            fired_at = self.now + 60.0
            self._until(fired_at + 30.0)
            first = self._decide(f"f{number}", fired_at, "first")
            if first.decision == "grace":
                self._until(self.now + 600.0)
                self._carry_out(f"f{number}", self._decide(f"f{number}", fired_at, "final"))
        self._until(self.now + 900.0)

    def _decide(self, fire_id: str, fired_at: float, attempt: Any) -> ResourceDecision:
        row = RuleRow(JOB, Finding(RULE, None, "low."), Status.FIRED, evaluated_through=self.now, fire_id=fire_id)
        case = fire_of(JOB, RECORD.arn, RULE, at=fired_at, fire_id=fire_id, attempt=attempt)
        services = StopServices(
            lambda _: None,
            {"workload": lambda identities: resource_states(self.desk, "workload", identities, self.now)},
            self._switches,
            {"workload"},
        )
        known = StopPreconditions(RECORD, row)
        decision, _ = decide_within_stop_rate(case, services, self._budget, 5, known=known, now=self.now)
        return msgspec.convert(msgspec.to_builtins(decision), ResourceDecision)

    def _carry_out(self, fire_id: str, decision: ResourceDecision) -> None:
        fire = fire_of(JOB, RECORD.arn, RULE, at=START, fire_id=fire_id)
        calls = AwsStopCalls(cast("Any", None), self.desk, lambda: self.now)
        self.expires[fire_id] = decision.expires_at or 0.0
        while True:
            stop = carry_out(fire, decision, cast("Any", Rows()), calls, now=self.now).stop
            if not stop.pending:
                break
            self._until(self.now + STOP_POLL_S)
        self.results[fire_id] = stop

    def _until(self, time: float) -> None:
        """Let the agent look each 15 s, and people do what they like in between."""
        while self.now < time:
            self.now = min(self.now + self.chance.uniform(0.5, 1.0) * AGENT_POLL_S, time)
            if self.faulty:
                self._interfere()
            if self.faulty and self.chance.random() < 0.1:
                continue  # it does not run, or is slow
            before = len(self.cluster.effects)
            try:
                self._agent.run_once()
            except Died:
                self._agent = self._restarted()
            for effect in self.cluster.effects[before:]:
                self._judge(effect.request)

    def _interfere(self) -> None:
        what = self.chance.random() * (1.0 if self.results or self.desk.asked else 6.0)
        if what < 0.006:
            self.cluster.change(allowed="" if self.cluster.allowed else "suspend")
        elif what < 0.009:
            self.cluster.change(exempt=not self.cluster.exempt)
        elif what < 0.014:
            self.chance.choice([self.cluster.start, self.cluster.replace])()
        elif what < 0.017:
            self.cluster.change(job="another" if self.cluster.job == JOB else JOB)
        elif what < 0.03:
            kind = self.chance.choice([Braked.STOPS, Braked.EVALUATION])
            brake = new_brake("b-1", kind, by="ada", why="an audit", now=self.now)
            self.brakes = BrakeList() if self.brakes.brakes else BrakeList((brake,))
        elif what < 0.033:
            self.now += 400.0  # the cluster's network is away

    def _judge(self, request: str) -> None:
        """Note an effect that somebody had forbidden at that time."""
        asked = self.desk.asked[request]
        if self.cluster.allowed != asked.action or self.cluster.exempt or self.cluster.job != JOB:
            self.forbidden.append("without opt-in")
        if self.cluster.started_at > (asked.started_at or 0.0) + CLOCK_S:
            self.forbidden.append("on another run")
        if self.brakes.brakes:
            self.forbidden.append("under a brake")
        if self.now > asked.expires_at + CLOCK_S:
            self.forbidden.append("after its time")

    def _restarted(self) -> Agent:
        return Agent(self.desk, self.cluster, lambda: self.now + self.skew_s)

    def _switches(self) -> StopSwitches:
        return replace(StopSwitches("enabled"), brakes=self.brakes)

    def _fault(self, side: str, has_effect: bool) -> None:
        if self.chance.random() >= self._rate:
            return
        if side == "stack":
            raise PortUnavailableError("DynamoDB", "UpdateItem", "ordered")
        if self.chance.random() < 0.4:
            raise Died
        raise OSError("ordered, with its effect" if has_effect else "ordered")

    @property
    def wrong(self) -> str | None:
        """Return what came about and must not have."""
        of = {fire: [each for each in self.cluster.effects if each.request == fire] for fire in self.results}
        made = [(self.results[fire].made, len(effects)) for fire, effects in of.items()]
        faults = {
            f"an effect {', '.join(self.forbidden)}": bool(self.forbidden),
            "an effect without a result": len(self.cluster.effects) > sum(map(len, of.values())),
            "two effects of one fire": any(count > 1 for _, count in made),
            "two effects on one run": len({each.run for each in self.cluster.effects}) < len(self.cluster.effects),
            "an effect of a stop that was not made": any(count and result is False for result, count in made),
            "no effect of a stop that was made": self.atomic and (True, 0) in made,
        }
        return next((words for words, holds in faults.items() if holds), None)
