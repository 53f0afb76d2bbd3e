"""A deployment in memory that has judged the small job, and `trainguard` on it."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.functional.offline import offline_clients
from tests.support.delivery import Network
from tests.support.memory import MemoryWorld
from tests.support.small_job import JOB, uploads
from trainguard.cli.main import app
from trainguard.cli.services.deployment import Deployment, Stores
from trainguard.core.finding import FINDING_FIELDS, Finding, Severity
from trainguard.core.records import JobRecord, JobStatus, RuleRow, Status
from trainguard.rules.profiler_report import PROFILER_REPORT

NOT_STOPPED = "Training job not stopped: its owner has not opted in."
REPORT = f"s3://profiles/{JOB}/rule-output/TrainGuardReport/report.json"
_STYLES = re.compile(r"\x1b\[[0-9;]*m")
CLOCKS = ("alerts", "jobs", "status", "explain", "open")


@cache
def judged() -> tuple[JobRecord, tuple[RuleRow, ...], float]:
    """Return the small job's item and rows as the engine wrote them while it ran, and the time."""
    network = Network()
    *objects, end = uploads()
    for upload in objects:
        network.put(upload)
        network.announce(upload, upload.at + 5.0)
    now = objects[0].at
    while now < end.at + 60.0:
        now += 60.0
        network.run_until(now, batch_s=5.0)
        network.run_scheduler()
    rows = [_with_outcome(stored) for stored in network.world.rows.of_job(JOB)]
    return network.job(), tuple(rows), float(int(now))


def _with_outcome(stored: RuleRow) -> RuleRow:
    """Add what the fire path writes after the fire of LowGPUUtilization."""
    if stored.target != "LowGPUUtilization" or stored.fired_at is None:
        return stored
    at = stored.fired_at + 12.0
    return replace(stored, fire_id="f1", action=NOT_STOPPED, action_at=at, alert_id="f1", report_uri=REPORT)


@dataclass(frozen=True)
class Deployed:
    """Stores that a test fills, the time, and the commands on them."""

    world: MemoryWorld
    now: float

    def add(self, record: JobRecord, rows: Sequence[RuleRow] = ()) -> None:
        """Store a job with its rows."""
        self.world.jobs.register(record)
        for stored in rows:
            self.world.rows.record(replace(stored, job=record.job))

    @property
    def stores(self) -> Stores:
        """What the commands work with."""
        world = self.world
        return Stores(
            jobs=world.jobs,
            nodes=world.nodes,
            rows=world.rows,
            bookkeeping=world.bookkeeping,
            objects=world.objects,
            alerts=world.alerts,
        )

    def run(self, *words: str, env: Mapping[str, str] | None = None) -> Result:
        """Run a command."""
        return CliRunner().invoke(app, list(words), env=env)

    def shown(self, *words: str, columns: int) -> str:
        """Return what a command shows on a terminal of so many columns, without bold, dim and colours."""
        result = self.run(*words, env={"TTY_COMPATIBLE": "1", "TERM": "xterm", "COLUMNS": str(columns)})
        assert result.exit_code == 0, result.stderr
        return _STYLES.sub("", result.stdout)


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch) -> Deployed:
    """Return a deployment that has seen the small job."""
    record, rows, now = judged()
    found = Deployed(MemoryWorld(), now)
    found.add(record, rows)
    place = Deployment(
        stack="TrainGuard",
        status="CREATE_COMPLETE",
        region="eu-west-1",
        partition="aws",
        account="111122223333",
        outputs={},
        clients=offline_clients(),
    )
    monkeypatch.setattr("trainguard.cli.services.deployment.find_deployment", lambda _: place)
    monkeypatch.setattr("trainguard.cli.services.deployment.open_stores", lambda _: found.stores)
    for module in CLOCKS:
        monkeypatch.setattr(f"trainguard.cli.commands.{module}.time", SimpleNamespace(time=lambda: now))
    return found


def job(name: str, **changes: Any) -> JobRecord:
    """Return a job without samples so far."""
    record = JobRecord(name, f"arn:{name}", "profiles", "", status=JobStatus.IN_PROGRESS)
    return replace(record, **changes)


def row(rule: str, status: Status = Status.OK, node: str | None = None, **changes: Any) -> RuleRow:
    """Return a row of a rule."""
    said = {name: changes.pop(name) for name in FINDING_FIELDS if name in changes}
    finding = replace(Finding(rule, node, f"{rule} says {status}."), **said)
    return replace(RuleRow("job", finding, status), **changes)


def firing(rule: str, severity: Severity = Severity.HIGH, **changes: Any) -> list[RuleRow]:
    """Return the rows of a job on which one rule fires: its own and the report's."""
    given = {"severity": severity, "times_fired": 1, "fired_at": 60.0, "advice": "Do it.", **changes}
    own = row(rule, Status.FIRED, **given)
    report = row(PROFILER_REPORT, Status.FIRED, reason=f"{rule} ({severity}): it fired.", times_fired=1)
    return [own, report]


def many_nodes(rule: str, count: int, status_of: Callable[[int], Status]) -> list[RuleRow]:
    """Return a rule's rows on so many nodes."""
    return [row(rule, status_of(number), f"algo-{number}", worst="gpu0") for number in range(1, count + 1)]
