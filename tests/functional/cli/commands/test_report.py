"""`trainguard report`: a report of a folder, of a prefix, of a job that the stack knows, and by the stack itself."""

import json
import time
import webbrowser
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.stepfunctions.models import stepfunctions_backends
from typer.testing import CliRunner, Result

from demo.recording import Recording
from tests.support.deployed_stack import PREFIX, REGION, STACK, DeployedStack, deployed_stack
from tests.support.small_job import BUCKET, JOB, START, Upload
from tests.unit.local.places import write
from trainguard.cli.commands.report import drawn
from trainguard.cli.main import app
from trainguard.core.records import StreamKey, StreamRecord
from trainguard.report.document import report_schema
from trainguard.rules.registry import RULE_NAMES

RECORDINGS = Path(__file__).parents[4] / "events" / "jobs"
LOW = {"LowGPUUtilization": {"window": 20, "patience": 20}}
MANAGED = sorted(f"profiler-reports/{rule}.json" for rule in RULE_NAMES)
MOST_BYTES = 3_000_000
VALIDATOR = Draft202012Validator(report_schema())


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch, here: Path) -> Iterator[DeployedStack]:
    with deployed_stack(monkeypatch) as deployed:
        yield deployed


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, here: Path) -> Iterator[DeployedStack]:
    """Return a stack with its report machine."""
    with deployed_stack(monkeypatch, machine=True) as deployed:
        yield deployed


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("profiles"))


def report(*words: object) -> Result:
    return CliRunner().invoke(app, ["report", *(str(word) for word in words)])


def told(*words: object) -> dict[str, Any]:
    result = report(*words, "--json")
    assert result.exit_code == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    assert result.stderr.split("\n") == [*document["notes"], ""]
    return document


def read(place: object) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(Path(str(place)).read_text("utf-8"))
    VALIDATOR.validate(document)
    return document


def params(document: object) -> Path:
    file = Path("params.json")
    file.write_text(json.dumps(document), encoding="utf-8")
    return file


def written(folder: Path) -> list[str]:
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())


def delete(stack: DeployedStack, *, holding: str) -> None:
    """Delete the objects with that in their keys from the bucket."""
    for each in stack.clients.s3.list_objects_v2(Bucket=BUCKET)["Contents"]:
        if holding in each["Key"]:
            stack.clients.s3.delete_object(Bucket=BUCKET, Key=each["Key"])


@pytest.mark.parametrize("name", ["slow_steps", "healthy"])
def test_report_of_a_recorded_job_is_full_valid_and_small(here: Path, name: str) -> None:
    objects = Recording.load(RECORDINGS / f"{name}.npz").objects(name.replace("_", "-"), start=START)
    place = write(here / "profiles", [Upload(item.appears_at, item.key, item.body) for item in objects])
    result = report(place, "--out", "out", "--instance-type", "ml.p3.8xlarge")
    assert (result.exit_code, result.stderr) == (0, "")
    document = read("out/report.json")
    assert document["scope"] == "full"
    assert document["timelines"]["nodes"][0]["gpus"]
    assert document["healthy"] == (name == "healthy")
    assert written(Path("out")) == [*MANAGED, "report.html", "report.json"]
    page = Path("out/report.html").read_text("utf-8")
    assert place.name in page
    assert len(page.encode()) < MOST_BYTES
    verdict = document["verdict"]
    said = result.stdout.split("\n")
    assert said[0] == place.name
    assert said[1:4] == [verdict["health"], verdict["change"], verdict["cost"]]
    assert said[4] == "Report: out/report.html"


def test_default_output_is_a_folder_named_after_the_job(here: Path, folder: Path) -> None:
    document = told(folder)
    assert (document["job"], document["page"]) == (JOB, f"{JOB}-report/report.html")
    assert sorted(document["files"]) == written(Path(f"{JOB}-report"))
    assert (document["made_from"], document["scope"], document["healthy"]) == ("profile", "full", False)
    assert document["fired"] == read(f"{JOB}-report/report.json")["fired"]


def test_output_file_writes_the_page_alone(here: Path, folder: Path) -> None:
    document = told(folder, "--out", "pages/mine.html")
    assert (document["page"], document["files"]) == ("pages/mine.html", ["mine.html"])
    assert written(Path("pages")) == ["mine.html"]


def test_given_parameters_when_reported_then_they_are_the_rules(here: Path, folder: Path) -> None:
    patient = {"LowGPUUtilization": {"patience": 1000}}
    assert "LowGPUUtilization" not in told(folder, "--params", params(patient))["fired"]
    assert "LowGPUUtilization" in told(folder, "--params", params(LOW))["fired"]
    assert report(folder, "--params", params(LOW), "--fail-on-fire").exit_code == 1
    assert report(folder, "--fail-on-fire", "--params", params({"rule_to_invoke": "Dataloader"})).exit_code == 3


def test_given_open_when_reported_then_the_page_is_opened(
    here: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def browse(url: str) -> bool:
        opened.append(url)
        return True

    monkeypatch.setattr(webbrowser, "open", browse)
    document = told(folder, "--open")
    assert opened == [(here / document["page"]).as_uri()]
    assert document["notes"] == []


def test_missing_browser_is_reported(here: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    result = report(folder, "--open")
    assert (result.exit_code, result.stderr) == (0, "No browser could be opened.\n")


def test_unmakeable_page_is_reported_and_the_rest_is_written(
    here: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> str:
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr("trainguard.report.html.render.render_report", fail)
    result = report(folder, "--out", "out")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "ZeroDivisionError: by nothing" in result.stderr
    assert written(Path("out")) == [*MANAGED, "report.json"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a/b"], "'a/b' does not exist, expected a folder, a file, s3://bucket/prefix, or the name of a training job"),
        (["name_with_underscores"], "or the name of a training job"),
        ([".", "--params", "nowhere.json"], "nowhere.json"),
        (["one", "--out", "file/out"], "'file/out' cannot be written"),
    ],
)
def test_unreportable_input_is_refused_in_words(here: Path, words: list[str], said: str) -> None:
    for name in ("one", "two"):
        Path(name, "profiler-output/system").mkdir(parents=True)
    Path("file").touch()
    result = report(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in " ".join(result.stderr.replace("│", " ").split())


def test_stack_job_has_verdicts_of_state_and_profile_time_lines(
    stack: DeployedStack,
) -> None:
    stack.live_job()
    delete(stack, holding=".algo-1.json")
    document = told(JOB)
    assert (document["made_from"], document["scope"], document["final"]) == ("state", "full", True)
    assert document["source"] == f"s3://{BUCKET}/{PREFIX}{JOB}/profiler-output"
    made = read(f"{JOB}-report/report.json")
    rows = {row.rule: row for row in stack.connection.stores.rows.of_job(JOB) if row.node is None}
    low = next(rule for rule in made["rules"] if rule["rule"] == "LowGPUUtilization")
    assert (low["status"], low["worst"]) == ("FIRED", rows["LowGPUUtilization"].worst)
    assert low["data_points"] == rows["LowGPUUtilization"].data_points
    gpus = {node["node"]: bool(node["gpus"]) for node in made["timelines"]["nodes"]}
    assert gpus == {"algo-1": False, "algo-2": True}


def test_job_without_state_is_judged_by_its_own_settings(
    stack: DeployedStack,
) -> None:
    stack.live_job(state=False)
    document = told(JOB)
    assert document["made_from"] == "profile"
    assert "has expired, or was not written yet: its profile was evaluated again" in document["notes"][0]
    assert "LowGPUUtilization" in document["fired"]


def test_job_without_profile_is_reported_from_state_and_says_so(
    stack: DeployedStack,
) -> None:
    stack.live_job()
    delete(stack, holding="")
    document = told(JOB)
    assert (document["made_from"], document["scope"]) == ("state", "state")
    assert "without time lines" in document["notes"][0]
    assert "LowGPUUtilization" in document["fired"]
    assert read(f"{JOB}-report/report.json")["timelines"] is None


def test_replay_is_judged_by_the_settings_of_the_replay(
    stack: DeployedStack,
) -> None:
    stack.live_job()
    looser = params({"LowGPUUtilization": {"threshold_p95": 5, "threshold_p5": 1}})
    assert CliRunner().invoke(app, ["replay", JOB, "--as", "looser", "--params", str(looser)]).exit_code == 0
    name = f"{JOB}@replay-looser"
    document = told(name, "--out", "again")
    assert (document["job"], document["made_from"], document["scope"]) == (name, "profile", "full")
    assert "LowGPUUtilization" not in document["fired"]
    assert "is not kept of a replay" in document["notes"][0]


def test_unknown_job_suggests_similar_names_and_a_way_out(
    stack: DeployedStack,
) -> None:
    stack.live_job()
    result = report("smal-job")
    assert (result.exit_code, result.stdout) == (2, "")
    said = " ".join(result.stderr.split())
    assert JOB in said
    assert "s3://<bucket>/<prefix>/<job>" in said


def test_parameters_for_a_stack_job_suggest_the_way(stack: DeployedStack) -> None:
    result = report(JOB, "--params", params(LOW))
    assert result.exit_code == 2
    assert f"trainguard replay {JOB} --params params.json" in " ".join(result.stderr.split())


def test_report_of_a_running_job_is_not_final(stack: DeployedStack) -> None:
    evaluation = stack.live_job()
    running = replace(evaluation.job, job="running", closing=False, active=True)
    stack.connection.stores.jobs.register(running)
    for record in evaluation.records:
        key = StreamKey("running", record.key.node, record.key.stream)
        stack.connection.stores.nodes.save(replace(record, key=key, version=0, closed=False))
    document = told("running", "--out", "out")
    assert (document["final"], document["scope"], document["made_from"]) == (False, "state", "state")


def test_state_of_an_unreadable_version_is_refused(stack: DeployedStack) -> None:
    evaluation = stack.live_job()
    stack.connection.stores.jobs.register(replace(evaluation.job, job="newer"))
    stack.connection.stores.nodes.save(StreamRecord(StreamKey("newer", "algo-1", "system"), state=b"?", codec=250))
    result = report("newer")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Codec 250" in result.stderr


def test_folder_named_like_a_job_is_preferred_and_reported(
    stack: DeployedStack,
) -> None:
    write(Path())
    stack.live_job()
    document = told(JOB)
    assert (document["made_from"], stack.calls) == ("profile", [])
    assert document["notes"][0].startswith(f"{JOB} is a folder here")
    assert told(f"./{JOB}")["notes"] == []


def test_s3_prefix_is_judged_locally(stack: DeployedStack) -> None:
    stack.upload()
    stack.calls.clear()
    document = told(f"s3://{BUCKET}/jobs", "--region", REGION)
    assert (document["job"], document["made_from"], document["scope"]) == (JOB, "profile", "full")
    assert {service for service, _ in stack.calls} == {"s3"}


def executions(stack: DeployedStack) -> list[Any]:
    [machine] = stepfunctions_backends[DEFAULT_ACCOUNT_ID][REGION].state_machines
    return list(machine.executions)


def ended(patch: pytest.MonkeyPatch, stack: DeployedStack, status: str, cause: str | None = None) -> Result:
    """Have the stack make the small job's report by an execution that ends so after three looks."""
    waited: list[float] = []

    def pause(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            [execution] = executions(stack)
            execution.status, execution.cause = status, cause

    patch.setattr(drawn, "time", SimpleNamespace(sleep=pause, monotonic=time.monotonic))
    result = report(JOB, "--in-stack", "--stack", STACK, "--region", REGION)
    assert result.exit_code == (0 if status == "SUCCEEDED" else 2)
    assert len(waited) == 3
    return result


def test_report_by_the_stack_is_started_and_awaited(machine: DeployedStack, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.live_job()
    said = ended(monkeypatch, machine, "SUCCEEDED").stdout
    [execution] = executions(machine)
    assert json.loads(execution.execution_input) == {"job": JOB}
    assert f"Report: s3://{BUCKET}/{PREFIX}{JOB}/rule-output/TrainGuardReport/report.html" in said
    assert f"trainguard open {JOB}" in said


@pytest.mark.parametrize("status", ["FAILED", "TIMED_OUT", "ABORTED"])
def test_failed_report_execution_shows_its_cause(
    machine: DeployedStack, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    machine.live_job()
    told = ended(monkeypatch, machine, status, "no item of the job").stderr
    assert f"ended as {status}: no item of the job" in " ".join(told.split())


@pytest.mark.parametrize("name", ["no-such-job", f"{JOB}@replay-x", "./folder"])
def test_report_by_the_stack_of_no_stack_job_starts_nothing(machine: DeployedStack, name: str) -> None:
    result = report(name, "--in-stack")
    assert (result.exit_code, result.stdout) == (2, "")
    assert name in result.stderr
    assert executions(machine) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("job", "--in-stack", "--out", "x", "--fail-on-fire"),
            "--out, --fail-on-fire have no meaning with --in-stack",
        ),
        (("job", "--in-stack", "--instance-type", "ml.x"), "--instance-type has no meaning with --in-stack"),
        (("--in-stack",), "--in-stack has no meaning with all jobs of the stack"),
        (("--framework-expected",), "--framework-expected has no meaning with all jobs of the stack"),
        (("job", "--since", "3d"), "--since has no meaning with one job"),
    ],
)
def test_option_without_effect_is_refused(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    result = report(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_missing_credentials_for_a_prefix_say_what_to_do(monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(here / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    result = report("s3://profiles/jobs/job", "--region", REGION)
    assert result.exit_code == 2
    assert "no AWS credentials were found" in result.stderr
    assert "aws sso login" in result.stderr


def test_another_run_is_shown_beside_the_first(here: Path, folder: Path) -> None:
    objects = Recording.load(RECORDINGS / "slow_steps.npz").objects("slow-steps", start=START)
    other = write(here / "profiles", [Upload(item.appears_at, item.key, item.body) for item in objects])
    document = told(folder, "--compare", other)
    assert document["comparison"]["job"] == other.name
    assert read(Path(document["page"]).with_name("report.json"))["comparison"] == document["comparison"]
    assert f"Compared with {other.name}" in Path(document["page"]).read_text("utf-8")
    assert f"Compared with {other.name}: " in report(folder, "--compare", other).stdout
    assert report("--compare", other).exit_code == 2
