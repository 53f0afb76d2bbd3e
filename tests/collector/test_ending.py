"""The end of a job of several nodes: the last one to end writes it."""

import json
import time
from pathlib import Path

import pytest

from trainguard.core.records import JobStatus
from trainguard.engine.jobs.job_file import read_job_file
from trainguard_collector.ending import (
    COLLECTOR_SILENT_S,
    GONE_S,
    begin_job,
    current_job_file,
    end_job,
    job_file,
    of_this_attempt,
    status_object,
)
from trainguard_collector.layout import end_key, job_file_key, status_key
from trainguard_collector.names import Identity
from trainguard_collector.places import Folder
from trainguard_collector.settings import SettingError, Settings, find_resources, read_settings


def settings(node: str, index: int = 0, *, in_sagemaker: bool = False) -> Settings:
    return Settings("s3://bucket", Identity("run-1", node, index, 2, in_sagemaker), instance_type="p5.48xlarge")


def note(folder: Path, node: str, at: float, outcome: str | None = None) -> None:
    more = {} if outcome is None else {"outcome": outcome}
    Folder(str(folder)).put(status_key("run-1", node), status_object(settings(node), 100.0, at, **more))


def test_job_goes_on_while_another_node_still_writes(tmp_path: Path) -> None:
    note(tmp_path, "b", time.time())
    assert not end_job(Folder(str(tmp_path)), settings("a"), 100.0, "Completed")
    assert not (tmp_path / end_key("run-1")).exists()


def test_last_node_ends_the_job_with_the_worst_outcome(
    tmp_path: Path,
) -> None:
    note(tmp_path, "b", time.time(), "Failed")
    assert end_job(Folder(str(tmp_path)), settings("a", 1), 200.0, "Completed")
    body = (tmp_path / job_file_key("run-1")).read_bytes()
    described = read_job_file("run-1/job.json", body, "run-1")
    assert (described.status, described.instance_type, described.instance_count) == (
        JobStatus.FAILED,
        "p5.48xlarge",
        2,
    )
    assert (described.started_at, described.profiling_interval_ms) == (100.0, 500)
    assert (tmp_path / end_key("run-1")).read_bytes() == b""


def test_job_ends_without_a_node_silent_for_ten_minutes(tmp_path: Path) -> None:
    note(tmp_path, "b", time.time() - COLLECTOR_SILENT_S - 1.0)
    assert end_job(Folder(str(tmp_path)), settings("a"), 100.0, "Completed")


# What a node left that failed: this one began at 1,400 and ends at 2,000.
OTHER = {"started_at": 1000.0, "updated_at": 1300.0, "outcome": "Failed"}


@pytest.mark.parametrize(
    ("own", "other", "counted"),
    [
        ({"attempt": 2, "nodes": 1}, {**OTHER, "attempt": 1}, False),  # AWS Batch, Slurm's requeue
        ({"attempt": 2}, {**OTHER, "attempt": 2}, True),  # a node of the same attempt that failed early
        ({"attempt": 1}, {**OTHER, "attempt": 2}, None),  # the next attempt runs: its end is not this one's
        ({}, OTHER, False),  # Kubernetes' backoffLimit: another pod
        ({}, {"started_at": 1000.0, "updated_at": 1300.0}, False),  # a spot instance that was taken, and replaced
        ({}, {"started_at": 1000.0, "updated_at": 2000.0 - GONE_S + 1.0}, True),  # started earlier, and still there
        ({}, {**OTHER, "updated_at": 1500.0}, True),  # a node of the same attempt
        ({"nodes": 1}, {"started_at": 1000.0, "updated_at": 1990.0}, False),
        ({"nodes": 1}, {"started_at": 1900.0, "updated_at": 1990.0}, None),
        ({}, {"updated_at": None, "started_at": "x", "outcome": "Failed"}, False),
    ],
)
def test_earlier_attempts_and_replaced_nodes_do_not_count(
    own: dict[str, object], other: dict[str, object], counted: bool | None
) -> None:
    expected = None if counted is None else [other] if counted else []
    assert of_this_attempt({"started_at": 1400.0, **own}, [other], 2000.0) == expected


def test_nodes_that_saw_both_leave_out_the_replaced_one() -> None:
    taken = {"started_at": 1000.0, "updated_at": 1300.0}
    replacement = {"started_at": 1400.0, "updated_at": 1990.0, "outcome": "Completed"}
    assert of_this_attempt({"started_at": 1000.0}, [taken, replacement], 2000.0) == [replacement]
    assert of_this_attempt({"started_at": 1000.0}, [taken], 2000.0) == [taken]


def test_next_attempt_withdraws_the_end_of_a_failed_one(
    tmp_path: Path,
) -> None:
    place = Folder(str(tmp_path))
    note(tmp_path, "pod-1", 150.0, "Failed")
    assert end_job(place, settings("pod-1"), 100.0, "Failed")
    place.put(job_file_key("run-1"), begin_job(place, settings("pod-2"), 200.0))
    assert not (tmp_path / end_key("run-1")).exists()
    begun = json.loads((tmp_path / job_file_key("run-1")).read_bytes())
    assert (begun["status"], begun["started_at"], "ended_at" in begun) == ("InProgress", 200.0, False)
    assert end_job(place, settings("pod-2"), 200.0, "Completed")
    ended = json.loads((tmp_path / job_file_key("run-1")).read_bytes())
    assert (ended["status"], ended["started_at"]) == ("Completed", 200.0)


def test_first_node_ends_the_job_without_list_permission(tmp_path: Path) -> None:
    class WriteOnly(Folder):
        def keys(self, prefix: str) -> list[str]:
            raise PermissionError(prefix)

    assert not end_job(WriteOnly(str(tmp_path)), settings("b", 1), 100.0, "Completed")
    assert end_job(WriteOnly(str(tmp_path)), settings("a", 0), 100.0, "Completed")


def test_sagemaker_job_gets_no_file_of_its_own(tmp_path: Path) -> None:
    assert end_job(Folder(str(tmp_path)), settings("a", in_sagemaker=True), 100.0, "Completed")
    assert not (tmp_path / job_file_key("run-1")).exists()


def test_description_of_a_running_job_is_read_by_the_engine() -> None:
    body = job_file(settings("a"), 1_800_000_000.0, "InProgress")
    assert read_job_file("run-1/job.json", body, "run-1").status is JobStatus.IN_PROGRESS
    assert "ended_at" not in json.loads(body)


def test_job_settings_are_read_by_the_engine_as_tags() -> None:
    text = '{"LowGPUUtilization_threshold_p95": 60, "evaluate": "no"}'
    found = read_settings({"TRAINGUARD_OUTPUT": "s3://b", "TRAINGUARD_SETTINGS": text}, Identity("run-1", "a"))
    assert found is not None
    described = read_job_file("run-1/job.json", job_file(found, 1.0, "InProgress"), "run-1")
    assert described.tags["trainguard:LowGPUUtilization_threshold_p95"] == "60"
    assert described.tags["trainguard:evaluate"] == "no"


@pytest.mark.parametrize(
    "text",
    ["rubbish", "[1]", '{"a": {}}', '{"a": null}', '{"": 1}', json.dumps({"a": "b" * 257})],
    ids=["rubbish", "list", "nested", "null", "nameless", "long"],
)
def test_settings_invalid_for_the_engine_are_refused_at_start(text: str) -> None:
    with pytest.raises(SettingError, match="TRAINGUARD_SETTINGS"):
        read_settings({"TRAINGUARD_OUTPUT": "s3://b", "TRAINGUARD_SETTINGS": text}, Identity("run-1", "a"))


@pytest.mark.parametrize(
    ("environment", "given", "described"),
    [
        ({}, {}, ("slurm", "gpu", {"submitted-by": "ann"})),
        (
            {"TRAINGUARD_PLATFORM": "hyperpod", "TRAINGUARD_QUEUE": "h100"},
            {},
            ("hyperpod", "h100", {"submitted-by": "ann"}),
        ),
        ({"TRAINGUARD_TAGS": '{"owner": "bob"}'}, {}, ("slurm", "gpu", {"submitted-by": "ann", "owner": "bob"})),
        ({}, {"tags": {"team": "x"}}, ("slurm", "gpu", {"submitted-by": "ann", "team": "x"})),
        ({}, {"tags": 7}, ("slurm", "gpu", None)),
    ],
)
def test_platform_queue_and_owner_are_read_by_the_engine(
    environment: dict[str, str], given: dict[str, object], described: tuple[object, ...], tmp_path: Path
) -> None:
    identity = Identity("run-1", "a", 0, 1, platform="slurm", queue="gpu", submitted={"submitted-by": "ann"})
    existing = json.dumps({"name": "run-1", **given}).encode()
    body = job_file(started(environment, tmp_path, identity), 1.0, "InProgress", existing=existing)
    if described[2] is None:  # what the user wrote stays, and the engine says that it is unusable
        assert json.loads(body)["tags"] == given["tags"]
        return
    found = read_job_file("run-1/job.json", body, "run-1")
    assert (found.platform, found.queue, found.tags) == described


def started(environment: dict[str, str], tmp_path: Path, identity: Identity | None = None) -> Settings:
    found = read_settings(
        {"TRAINGUARD_OUTPUT": str(tmp_path), **environment}, identity or Identity("run-1", "a", 0, nodes=1)
    )
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("environment", "resources"),
    [
        ({"AWS_BATCH_JOB_ID": "5e2f-1#0"}, ("batch-job/5e2f-1",)),
        ({"AWS_BATCH_JOB_ID": "5e2f-1:7"}, ("batch-job/5e2f-1:7",)),
        (
            {"TRAINGUARD_RESOURCES": "i-0123456789abcdef0, i-12345678"},
            ("instance/i-0123456789abcdef0", "instance/i-12345678"),
        ),
        ({"TRAINGUARD_RESOURCES": '{"batch_job": "1"}', "AWS_BATCH_JOB_ID": "2"}, ("batch-job/1",)),
        ({"TRAINGUARD_RESOURCES": '{"cluster": "hpc", "workload": "slurm/7"}'}, ("workload/hpc/slurm/7",)),
        ({}, ()),
    ],
)
def test_resources_at_start_and_end_are_read_by_the_engine(
    environment: dict[str, str], resources: tuple[str, ...], tmp_path: Path
) -> None:
    given = Settings.from_json(started({**environment, "TRAINGUARD_TAGS": '{"owner": "vision"}'}, tmp_path).to_json())
    described = read_job_file("run-1/job.json", job_file(given, 1.0, "InProgress"), "run-1")
    assert (described.resources, described.tags) == (resources, {"owner": "vision"})
    assert end_job(Folder(str(tmp_path)), given, 1.0, "Completed")
    assert read_job_file("x", (tmp_path / job_file_key("run-1")).read_bytes(), "run-1").resources == resources


@pytest.mark.parametrize(
    ("content", "environment", "identity", "found"),
    [
        ("i-0123456789abcdef0\n", {}, Identity("run-1", "a"), {"instances": ["i-0123456789abcdef0"]}),
        ("i-0123456789abcdef0\n", {"TRAINGUARD_JOB": "run-1"}, Identity("run-1", "a"), {}),
        ("i-0123456789abcdef0\n", {"TORCHELASTIC_RUN_ID": "x"}, Identity("x", "a"), {}),
        ("i-0123456789abcdef0\n", {}, Identity("run-1", "a", 0, 2), {}),
        ("i-0123456789abcdef0\n", {"SLURM_JOB_ID": "7"}, Identity("run-1", "a", 0, 1), {}),
        ("i-0123456789abcdef0\n", {}, Identity("run-1", "a", 0, 1, True), {}),
        ("Default string\n", {}, Identity("run-1", "a"), {}),
    ],
)
def test_instance_is_named_if_the_job_has_it_alone(
    content: str, environment: dict[str, str], identity: Identity, found: dict[str, object], tmp_path: Path
) -> None:
    (tmp_path / "tag").write_text(content)
    assert find_resources(environment, identity, asset_tag=tmp_path / "tag") == found
    assert find_resources(environment, identity, asset_tag=tmp_path / "none") == {}


@pytest.mark.parametrize(
    "text",
    [
        "i-x",
        '{"batch_job": ""}',
        '{"instances": []}',
        "{",
        '{"queue": "a"}',
        "[1]",
        '{"cluster": "a", "workload": "b"}',
    ],
)
def test_unusable_resources_error_names_the_setting(text: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="TRAINGUARD_RESOURCES"):
        started({"TRAINGUARD_RESOURCES": text}, tmp_path)
    with pytest.raises(SettingError, match="TRAINGUARD_TAGS"):
        started({"TRAINGUARD_TAGS": '{"owner": 7}'}, tmp_path)


def test_job_file_of_the_user_is_kept_at_start_and_end(tmp_path: Path) -> None:
    place, given = Folder(str(tmp_path)), started({}, tmp_path)
    own = {"name": "run-1", "tags": {"team": "x"}, "settings": {"evaluate": "yes"}, "ended_at": 5.0, "status": "Failed"}
    own |= {"framework_metrics": True, "instance_type": "p5.48xlarge", "resources": {"batch_job": "1"}}
    place.put(job_file_key("run-1"), json.dumps(own).encode())
    begun = job_file(given, 10.0, "InProgress", existing=current_job_file(place, given))
    place.put(job_file_key("run-1"), begun)
    assert end_job(place, given, 10.0, "Completed")
    for body in (begun, (tmp_path / job_file_key("run-1")).read_bytes()):
        described = read_job_file("run-1/job.json", body, "run-1")
        assert described.tags == {"team": "x", "trainguard:evaluate": "yes"}
        assert (described.resources, described.framework_profiling) == (("batch-job/1",), True)
        assert (described.instance_type, described.started_at) == ("p5.48xlarge", 10.0)
    assert "ended_at" not in json.loads(begun)
    assert (described.status, described.ended_at is not None) == (JobStatus.COMPLETED, True)


@pytest.mark.parametrize("existing", [None, b"", b"{", b"[]", b"\xff", b'{"name": "run-2", "tags": {"a": "b"}}'])
def test_job_file_is_written_if_none_can_be_kept(existing: bytes | None, tmp_path: Path) -> None:
    body = job_file(started({}, tmp_path), 10.0, "InProgress", existing=existing)
    assert read_job_file("run-1/job.json", body, "run-1").tags == {}


@pytest.mark.parametrize(
    ("began", "ends", "settings", "known"),
    [
        ("1800000000", "1800086400", "", {"time-limit": "86400s"}),
        ("1800000000", "1800086400", '{"time-limit": "2h"}', {"time-limit": "2h"}),
        ("1800000000", "4294967294", "", {}),
        ("1800000000", "1800000000", "", {}),
        ("1800000000", "soon", "", {}),
        ("", "1800086400", "", {}),
        ("1800000000", "9" * 99, "", {}),
    ],
)
def test_time_limit_of_slurm_is_a_setting_of_the_job(began: str, ends: str, settings: str, known: object) -> None:
    variables = {"SLURM_JOB_START_TIME": began, "SLURM_JOB_END_TIME": ends, "TRAINGUARD_SETTINGS": settings}
    found = read_settings({"TRAINGUARD_OUTPUT": "s3://b", **variables}, Identity("run-1", "a"))
    assert found is not None
    assert found.job_settings == known
