"""`trainguard alerts`: what was not sent, and sending it: once, by the fire machine, with an exit code that tells."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.faults import Fault
from tests.support.small_job import JOB
from tests.unit.cli.seen import Deployed, deployed, judged
from trainguard.core.finding import Finding
from trainguard.core.job_policy import AlertPolicy, JobPolicy, QuietHours
from trainguard.core.records import AlertKind, JobRecord, OutboxEntry, StopRecord
from trainguard.engine.outbox import execution_name, fire_payload
from trainguard.stack.actions.marks import Channel

__all__ = ["deployed"]

RULE = "LowGPUUtilization"
ERROR, CAUSE = "SNS.NotFoundException", "Topic does not exist"


class Machine:
    """The fire machine, which ends executions as a test says."""

    def __init__(self, deployed: Deployed) -> None:
        self.deployed = deployed
        self.executions = deployed.world.executions

    def failed(
        self, fire_id: str = "f" * 20, *, ago_s: float = 600.0, job: JobRecord | None = None, **changes: Any
    ) -> str:
        """Let an execution not have sent its alert."""
        record = job or judged()[0]
        entry = OutboxEntry(fire_id, 0, self.deployed.now - ago_s, Finding(RULE, "algo-1", "gpu1 is low.", 34.0, 70.0))
        entry = replace(entry, **changes)
        name = execution_name(entry, record.job)
        self.executions.start(name, fire_payload(entry, record))
        self.end(name, "FAILED", ago_s=ago_s, error=ERROR, cause=CAUSE)
        return name

    def end(self, name: str, status: str, *, ago_s: float = 0.0, **why: Any) -> None:
        self.executions.end(name, status, at=self.deployed.now - ago_s, **why)

    def ends(self, name: str, status: str, **why: Any) -> None:
        """Let an execution that is still to come have ended by the first look at it after its start."""

        def end() -> None:
            if name in self.executions.started:
                self.end(name, status, **why)

        for nth in range(1, 8):
            self.deployed.world.faults.interleave("ExecutionRecords.find", end, nth=nth)

    def run(self, *words: str) -> tuple[int, Any]:
        result = self.deployed.run("alerts", *words, "--json")
        return result.exit_code, json.loads(result.stdout) if result.stdout else result.stderr


@pytest.fixture
def machine(deployed: Deployed, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(deployed)
    monkeypatch.setattr("trainguard.cli.commands.alerts.unsent.machine_of", lambda _: machine.executions)
    monkeypatch.setattr("trainguard.cli.commands.alerts.unsent._EVERY_S", 0.0)
    return machine


def resends(machine: Machine) -> list[str]:
    return [name for name in machine.executions.started if name.startswith("resend-")]


def test_unsent_alerts_are_listed_with_reasons_and_start_nothing(
    machine: Machine,
) -> None:
    later = machine.failed("e" * 20)
    first = machine.failed(ago_s=900.0)
    code, said = machine.run("list")
    assert code == 0
    assert [each["execution"] for each in said["alerts"]] == [first, later]
    assert said["alerts"][0] == {
        "alert_id": "f" * 20,
        "kind": "fire",
        "job": JOB,
        "rule": RULE,
        "fired_at": "2026-11-21T08:02:00.000Z",
        "state": "unsent",
        "why": f"{ERROR}: {CAUSE}",
        "execution": first,
        "ended_at": "2026-11-21T08:02:00.000Z",
        "attempts": 0,
        "waits_until": None,
        "channels": {"mail": False, "chat": False},
    }
    assert resends(machine) == []


def test_unsent_alerts_listed_for_people_say_what_to_type(machine: Machine) -> None:
    machine.failed()
    said = machine.deployed.run("alerts", "list", JOB).stdout
    assert f"{JOB}\t{RULE} fire\t" in said
    assert f"\tunsent\t{ERROR}: {CAUSE}\n" in said
    assert said.endswith(f"1 alert not sent. To send them: trainguard alerts send {JOB}\n")
    assert "send --all\n" in machine.deployed.run("alerts", "list").stdout


def test_given_nothing_unsent_when_asked_then_it_says_so(machine: Machine) -> None:
    assert machine.deployed.run("alerts", "list").stdout == "No alert is unsent since 2026-11-07T08:17:00.000Z.\n"
    assert machine.run("send", JOB)[1]["alerts"] == []


def test_unknown_job_suggests_a_similar_one(machine: Machine) -> None:
    code, said = machine.run("send", JOB.upper())
    assert code == 2
    assert f"perhaps you mean {JOB}" in said


def test_unsent_alert_is_sent_by_one_execution_even_if_repeated(
    machine: Machine,
) -> None:
    name = machine.failed()
    machine.ends(f"resend-1-{name}", "SUCCEEDED")
    code, said = machine.run("send", JOB)
    assert (code, [each["state"] for each in said["alerts"]]) == (0, ["sent"])
    assert resends(machine) == [f"resend-1-{name}"]
    payload: Any = machine.executions.started[f"resend-1-{name}"]
    assert (payload["fireId"], payload["resend"]["of"], payload["resend"]["stop"]["made"]) == ("f" * 20, name, None)
    assert machine.run("send", JOB)[1]["alerts"] == []
    assert len(resends(machine)) == 1


def test_alert_that_chat_lacks_is_listed_and_sent(machine: Machine) -> None:
    name = machine.failed()
    machine.deployed.world.alerts.settle("f" * 20, Channel.MAIL, sent_at=1.0)
    (row,) = [each for each in judged()[1] if each.target == RULE]
    machine.deployed.world.rows.record(replace(row, fire_id="f" * 20, alert_id="f" * 20))
    assert machine.run("list")[1]["alerts"][0]["channels"] == {"mail": True, "chat": False}
    machine.ends(f"resend-1-{name}", "SUCCEEDED")
    (sent,) = machine.run("send", JOB)[1]["alerts"]
    assert (sent["state"], sent["channels"]) == ("sent", {"mail": True, "chat": True})


def test_alert_that_is_still_silenced_is_not_called_sent(machine: Machine) -> None:
    name = machine.failed()
    machine.end(name, "SUCCEEDED", ago_s=600.0)
    machine.deployed.world.alerts.silence("f" * 20, why="brake b-1", execution=name, now=machine.deployed.now - 600.0)
    machine.ends(f"resend-1-{name}", "SUCCEEDED")
    code, said = machine.run("send", JOB)
    assert (code, said["alerts"][0]["state"], said["alerts"][0]["why"]) == (1, "unsent", "silenced by brake b-1")


def test_sent_alert_carries_the_stop_of_its_row(machine: Machine) -> None:
    name = machine.failed()
    stop = StopRecord("refused", "its owner has not opted in", at=1.0, fire_id="f" * 20, made=False)
    (row,) = [each for each in judged()[1] if each.target == RULE]
    machine.deployed.world.rows.record(replace(row, fire_id="f" * 20, alert_id=None, stop=stop))
    machine.ends(f"resend-1-{name}", "SUCCEEDED")
    machine.run("send", JOB)
    payload: Any = machine.executions.started[f"resend-1-{name}"]
    assert payload["resend"]["decision"]["why"] == "its owner has not opted in"
    assert payload["resend"]["stop"] == {"made": False, "error": None, "pending": False}


def test_failed_attempt_sets_exit_code_and_the_next_is_renamed(
    machine: Machine,
) -> None:
    name = machine.failed()
    machine.ends(f"resend-1-{name}", "FAILED", error=ERROR, cause="still gone")
    code, said = machine.run("send", "--all")
    assert (code, said["alerts"][0]["state"], said["alerts"][0]["why"]) == (1, "unsent", f"{ERROR}: still gone")
    machine.deployed.world.faults.clear()
    machine.ends(f"resend-2-{name}", "SUCCEEDED")
    code, said = machine.run("send", "--all")
    assert (code, said["alerts"][0]["state"], said["alerts"][0]["attempts"]) == (0, "sent", 1)


def test_alerts_of_other_jobs_stay_when_one_job_is_sent(machine: Machine) -> None:
    other = replace(judged()[0], job="other", arn="arn:other")
    machine.deployed.add(other)
    machine.failed("e" * 20, job=other)
    name = machine.failed()
    machine.ends(f"resend-1-{name}", "SUCCEEDED")
    assert [each["job"] for each in machine.run("send", JOB)[1]["alerts"]] == [JOB]
    assert [each["job"] for each in machine.run("list")[1]["alerts"]] == ["other"]


def test_running_execution_is_under_way_and_not_started_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = machine.failed()
    monkeypatch.setattr("trainguard.cli.commands.alerts.unsent._LOOKS", 2)
    for _ in range(2):
        code, said = machine.run("send", JOB)
        assert (code, said["alerts"][0]["state"], said["alerts"][0]["why"]) == (0, "under way", None)
    assert machine.run("list")[1]["alerts"][0]["state"] == "under way"
    assert resends(machine) == [f"resend-1-{name}"]


def test_sending_in_quiet_hours_shows_the_time_without_waiting(
    machine: Machine,
) -> None:
    always = QuietHours(days=("sat", "sun", "mon", "tue", "wed", "thu", "fri"), start="00:00", end="23:59")
    quiet = replace(judged()[0], policy=JobPolicy(alerts=AlertPolicy(quiet_hours=(always,))))
    machine.failed(kind=AlertKind.CLEARED, job=quiet)
    code, said = machine.run("send", JOB)
    assert (code, said["alerts"][0]["state"]) == (0, "under way")
    assert said["alerts"][0]["waits_until"] > said["generated_at"]
    assert "waits until " in machine.deployed.run("alerts", "list").stdout


def test_refusal_of_step_functions_is_reported_and_loses_nothing(machine: Machine) -> None:
    name = machine.failed()
    machine.deployed.world.faults.schedule("Executions.start", Fault.FAIL_BEFORE)
    assert machine.run("send", JOB)[0] == 2
    machine.ends(f"resend-1-{name}", "SUCCEEDED")
    assert machine.run("send", JOB)[1]["alerts"][0]["state"] == "sent"


@pytest.mark.parametrize("words", [["send"], ["send", JOB, "--all"]])
def test_sending_without_a_job_or_with_several_asks_for_one(machine: Machine, words: list[str]) -> None:
    result = machine.deployed.run("alerts", *words)
    assert result.exit_code == 2
    assert "either a JOB or --all" in result.stderr
    assert resends(machine) == []


def test_executions_older_than_the_span_are_left_out(machine: Machine) -> None:
    machine.failed(ago_s=7_300.0)
    assert machine.run("list", "--since", "2h")[1]["alerts"] == []
    assert len(machine.run("list", "--since", "3h")[1]["alerts"]) == 1
