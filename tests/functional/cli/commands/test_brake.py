"""`trainguard brake`: brakes that several people put on and take off, and how commands show them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.client import BaseClient
from typer.testing import CliRunner, Result

from tests.support.deployed_stack import BRAKES, REGION, STOP_SWITCH, DeployedStack, deployed_stack
from trainguard.aws.brakes import SsmBrakes
from trainguard.cli.main import app
from trainguard.core.brakes import MOST_BYTES, read_brakes

WHY = ("--why", "a storm")


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[DeployedStack]:
    with deployed_stack(monkeypatch) as stack:
        yield stack


def brake(*words: str) -> Result:
    return CliRunner().invoke(app, ["brake", *words, "--region", REGION])


def document(*words: str) -> Any:
    result = brake(*words, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def stored(stack: DeployedStack) -> str:
    return str(stack.clients.ssm.get_parameter(Name=BRAKES)["Parameter"]["Value"])


def put(stack: DeployedStack, value: str) -> None:
    stack.clients.ssm.put_parameter(Name=BRAKES, Value=value, Type="String", Overwrite=True)


def test_brake_is_kept_with_who_when_and_why(stack: DeployedStack) -> None:
    added = document("add", "alerts", "--rule", "hungj", "--job", "bert", "--until", "2h", *WHY)
    (found,) = added["brakes"]
    assert (found["what"], found["rule"], found["job"], found["why"]) == ("alerts", "HungJob", "bert", "a storm")
    assert found["in_force"]
    assert found["by"].startswith("arn:aws:sts::123456789012:")
    assert found["since"] < found["until"]
    assert document("list")["brakes"] == [found]
    assert json.loads(stored(stack))[0]["id"] == found["id"]


def test_released_brake_stays_listed_with_who_released_it(stack: DeployedStack) -> None:
    del stack
    first, second = (document("add", what, *WHY)["brakes"][-1]["id"] for what in ("alerts", "stops"))
    document("release", first)
    over, on = document("list")["brakes"]
    assert (over["id"], over["in_force"], on["id"], on["in_force"]) == (first, False, second, True)
    assert over["released_by"].startswith("arn:aws:sts::")
    document("release", "--all")
    assert not any(each["in_force"] for each in document("list")["brakes"])
    said = brake("release", first)
    assert said.exit_code == 2
    assert f"no brake '{first}' is in force" in said.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "evaluation", "--rule", "HungJob", *WHY), "evaluation is braked for a job or the stack"),
        (("add", "alerts", "--why", "  "), "why is empty"),
        (("add", "alerts", "--why", "x" * 201), "why"),
        (("add", "alerts", "--until", "2020-01-01T00:00Z", *WHY), "which is over"),
        (("add", "alerts", "--until", "soon", *WHY), "is no time to come"),
        (("add", "alerts", "--until", "9999999999w", *WHY), "is no time to come"),
        (("add", "alerts", "--rule", "HungJb", *WHY), "perhaps you mean HungJob"),
        (("add", "alerts"), "--why"),
        (("add", "everything", *WHY), "everything"),
        (("release",), "either a BRAKE or --all"),
    ],
)
def test_brake_that_cannot_be_is_refused_and_written_nowhere(
    stack: DeployedStack, words: tuple[str, ...], said: str
) -> None:
    result = brake(*words)
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr
    assert ("ssm", "PutParameter") not in stack.calls


def test_brakes_beyond_the_room_are_refused_with_a_way_out(stack: DeployedStack) -> None:
    for number in range(40):
        result = brake("add", "alerts", "--job", f"job-{number}", "--why", "x" * 150)
        if result.exit_code:
            break
    assert "release one" in result.stderr
    assert len(stored(stack)) <= MOST_BYTES
    assert number > 8
    document("release", "--all")
    assert document("add", "alerts", "--why", "x" * 150)["brakes"][-1]["in_force"]


def test_writes_at_the_same_time_lose_no_brake(stack: DeployedStack) -> None:
    made = vars(BaseClient)["_make_api_call"]
    others = iter(range(3))

    def call(self: BaseClient, operation: str, arguments: dict[str, Any]) -> Any:
        # Somebody else reads and writes between this command's reading and its writing, three times.
        if operation == "PutParameter" and next(others, None) is not None:
            brake("add", "stops", "--why", "another hand")
        return made(self, operation, arguments)

    document("add", "evaluation", "--job", "first", *WHY)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(BaseClient, "_make_api_call", call)
        document("add", "alerts", *WHY)
    found = read_brakes(stored(stack)).brakes
    assert sorted(each.what for each in found) == ["alerts", "evaluation", "stops", "stops", "stops"]


def test_release_wins_over_a_write_of_what_was_before(stack: DeployedStack) -> None:
    first = document("add", "stops", *WHY)["brakes"][0]["id"]
    before = stored(stack)
    store = SsmBrakes(client=lambda: stack.clients.ssm, parameter=BRAKES)

    def in_between(brakes: Any) -> Any:
        brake("release", first)
        put(stack, before)
        return brakes

    store.change(in_between, now=0.0)
    assert not document("list")["brakes"][0]["in_force"]


@pytest.mark.parametrize("damage", ["", "nonsense", '[{"id": "b-1"}]', '{"id": 7}', "[" * 4000])
def test_damaged_list_is_told_and_replaced_by_the_next_brake(stack: DeployedStack, damage: str) -> None:
    put(stack, damage or " ")
    listed = brake("list", "--json")
    assert listed.exit_code == 0
    assert len(json.loads(listed.stdout)["faults"]) == 1
    assert "Until then nothing is stopped." in listed.stderr
    added = brake("add", "stops", *WHY)
    assert (added.exit_code, "is not written again" in added.stderr) == (0, True)
    assert document("list")["faults"] == []


@pytest.mark.parametrize("why", ["{{ssm:secret}}", "[bold]x[/bold]", "a\u202eb\nc", "\ud83d\ude00 é", '"}]'])
def test_hostile_reason_is_stored_and_shown_as_text(stack: DeployedStack, why: str) -> None:
    document("add", "alerts", "--why", why)
    assert "{{" not in stored(stack)
    assert stored(stack).isascii()
    (found,) = read_brakes(stored(stack)).brakes
    assert found.why.isprintable()
    assert found.why in brake("list").stdout


def test_status_and_stops_show_the_brakes_that_concern_them(stack: DeployedStack) -> None:
    stack.live_job()
    stack.clients.ssm.put_parameter(Name=STOP_SWITCH, Value="enabled", Type="String")
    for what, *more in (("alerts",), ("stops", "--job", "other"), ("evaluation",)):
        document("add", what, *more, *WHY)

    def shown(*words: str) -> list[str]:
        result = CliRunner().invoke(app, [*words, "--region", REGION, "--json"])
        assert result.exit_code == 0, result.stderr
        return [each["what"] for each in json.loads(result.stdout)["brakes"]]

    assert shown("status") == ["alerts", "stops", "evaluation"]
    assert shown("stops", "status") == ["stops", "evaluation"]
    (job,) = [each.job for each in stack.connection.stores.jobs.all()]
    assert shown("status", job) == ["alerts", "evaluation"]
    said = CliRunner().invoke(app, ["status", "--region", REGION]).stdout
    assert said.startswith("Brakes in force")


def test_fleet_names_the_brakes_in_force(stack: DeployedStack, tmp_path: Any) -> None:
    stack.live_job()
    document("add", "alerts", "--rule", "HungJob", *WHY)
    result = CliRunner().invoke(app, ["report", "--out", str(tmp_path), "--region", REGION])
    assert result.exit_code == 0, result.stderr
    fleet = json.loads((tmp_path / "fleet.json").read_text("utf-8"))
    assert [(each["what"], each["rule"], each["job"]) for each in fleet["brakes"]] == [("alerts", "HungJob", None)]
    assert fleet["notes"][0].startswith("An operator holds back alerts of HungJob on all jobs: brake b-")
    assert "An operator holds back alerts of HungJob" in (tmp_path / "fleet.html").read_text("utf-8")
