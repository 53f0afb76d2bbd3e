"""Whose an object is, where its key does not say it."""

from collections.abc import Callable

import pytest

from tests.support.memory import MemoryWorld
from trainguard.core.layout import ProfileRoot
from trainguard.core.records import JobRecord
from trainguard.engine.jobs.job_registry import MOST_FOLDERS, JobFolderIndex

BUCKET = "profiles"
ARN = "arn:aws:sagemaker:eu-west-1:111122223333:training-job/"
OUTER, INNER = ProfileRoot("", "team"), ProfileRoot("team/runs/", "job-1")


def known(*records: JobRecord) -> JobFolderIndex:
    world = MemoryWorld()
    for record in records:
        world.jobs.register(record)
    return JobFolderIndex(world.jobs, BUCKET)


def of_sagemaker(root: ProfileRoot, bucket: str = BUCKET) -> JobRecord:
    return JobRecord(job=root.job, arn=f"{ARN}{root.job}", bucket=bucket, prefix=root.prefix)


def outside(root: ProfileRoot) -> JobRecord:
    return JobRecord(job=root.place_name, arn=f"outside:{root.place_name}", bucket=BUCKET, prefix=root.prefix)


@pytest.mark.parametrize("made", [of_sagemaker, outside], ids=["SageMaker's", "outside"])
def test_object_in_nested_job_folders_belongs_to_the_inner_job(
    made: Callable[[ProfileRoot], JobRecord],
) -> None:
    places = known(made(OUTER), made(INNER))
    assert places.root_above(BUCKET, "team/runs/job-1/logs/rank3/n.pt.trace.json") == INNER
    assert places.root_above(BUCKET, "team/runs/job-2/n.pt.trace.json") == OUTER


def test_folder_name_alone_does_not_match_a_job_elsewhere() -> None:
    places = known(of_sagemaker(INNER), of_sagemaker(ProfileRoot("", "job-9"), bucket="other"))
    for key in ("copies/job-1/n.pt.trace.json", "job-9/n.pt.trace.json", "n.pt.trace.json", "job-1.pt.trace.json"):
        assert places.root_above(BUCKET, key) is None
    assert places.root_above("other", "job-9/n.pt.trace.json") is None


def test_deep_key_asks_for_a_limited_number_of_folders_once_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = MemoryWorld()
    asked: list[str] = []
    load = world.jobs.load

    def watched(job: str) -> JobRecord | None:
        asked.append(job)
        return load(job)

    monkeypatch.setattr(world.jobs, "load", watched)
    places = JobFolderIndex(world.jobs, BUCKET)
    for name in ("a", "b"):
        assert places.root_above(BUCKET, f"{'x/' * 30}{name}.pt.trace.json") is None
    assert len(asked) <= 2 * MOST_FOLDERS
