"""The end of a job of several nodes: the last one to end writes it."""

import json
import time
from pathlib import Path

import pytest

from trainguard.engine.jobs.job_file import read_job_file
from trainguard.records import JobStatus
from trainguard_collector.ending import SILENT_S, end_job, job_file, status_object
from trainguard_collector.layout import end_key, job_file_key, status_key
from trainguard_collector.names import Identity
from trainguard_collector.places import Folder
from trainguard_collector.settings import SettingError, Settings, read_settings


def settings(node: str, index: int = 0, *, in_sagemaker: bool = False) -> Settings:
    return Settings("s3://bucket", Identity("run-1", node, index, 2, in_sagemaker), instance_type="p5.48xlarge")


def note(folder: Path, node: str, at: float, outcome: str | None = None) -> None:
    more = {} if outcome is None else {"outcome": outcome}
    Folder(str(folder)).put(status_key("run-1", node), status_object(settings(node), 100.0, at, **more))


def test_given_a_node_that_still_writes_when_one_ends_then_the_job_goes_on(tmp_path: Path) -> None:
    note(tmp_path, "b", time.time())
    assert not end_job(Folder(str(tmp_path)), settings("a"), 100.0, "Completed")
    assert not (tmp_path / end_key("run-1")).exists()


def test_given_the_last_node_when_it_ends_then_the_job_has_the_worst_outcome_and_the_engine_reads_it(
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


def test_given_a_node_that_was_silent_for_ten_minutes_when_another_ends_then_the_job_ends(tmp_path: Path) -> None:
    note(tmp_path, "b", time.time() - SILENT_S - 1.0)
    assert end_job(Folder(str(tmp_path)), settings("a"), 100.0, "Completed")


def test_given_no_permission_to_list_when_nodes_end_then_the_first_alone_ends_the_job(tmp_path: Path) -> None:
    class WriteOnly(Folder):
        def keys(self, prefix: str) -> list[str]:
            raise PermissionError(prefix)

    assert not end_job(WriteOnly(str(tmp_path)), settings("b", 1), 100.0, "Completed")
    assert end_job(WriteOnly(str(tmp_path)), settings("a", 0), 100.0, "Completed")


def test_given_sagemaker_when_the_job_ends_then_it_has_no_file_of_its_own(tmp_path: Path) -> None:
    assert end_job(Folder(str(tmp_path)), settings("a", in_sagemaker=True), 100.0, "Completed")
    assert not (tmp_path / job_file_key("run-1")).exists()


def test_given_a_running_job_when_described_then_the_engine_reads_it() -> None:
    body = job_file(settings("a"), 1_800_000_000.0, "InProgress")
    assert read_job_file("run-1/job.json", body, "run-1").status is JobStatus.IN_PROGRESS
    assert "ended_at" not in json.loads(body)


def test_given_settings_of_the_job_when_started_then_the_engine_reads_them_as_tags() -> None:
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
def test_given_settings_that_the_engine_would_refuse_when_started_then_they_are_refused(text: str) -> None:
    with pytest.raises(SettingError, match="TRAINGUARD_SETTINGS"):
        read_settings({"TRAINGUARD_OUTPUT": "s3://b", "TRAINGUARD_SETTINGS": text}, Identity("run-1", "a"))
