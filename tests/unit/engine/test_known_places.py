"""Whose an object is, where its key does not say it."""

from collections.abc import Callable

import pytest

from trainguard.adapters.memory.world import MemoryWorld
from trainguard.engine.jobs.known_places import MOST_FOLDERS, KnownPlaces
from trainguard.layout import ProfileRoot
from trainguard.records import JobRecord

BUCKET = "profiles"
ARN = "arn:aws:sagemaker:eu-west-1:111122223333:training-job/"
OUTER, INNER = ProfileRoot("", "team"), ProfileRoot("team/runs/", "job-1")


def known(*records: JobRecord) -> KnownPlaces:
    world = MemoryWorld()
    for record in records:
        world.jobs.register(record)
    return KnownPlaces(world.jobs, BUCKET)


def of_sagemaker(root: ProfileRoot, bucket: str = BUCKET) -> JobRecord:
    return JobRecord(job=root.job, arn=f"{ARN}{root.job}", bucket=bucket, prefix=root.prefix)


def outside(root: ProfileRoot) -> JobRecord:
    return JobRecord(job=root.place_name, arn=f"outside:{root.place_name}", bucket=BUCKET, prefix=root.prefix)


@pytest.mark.parametrize("made", [of_sagemaker, outside], ids=["SageMaker's", "outside"])
def test_given_a_job_in_a_jobs_folder_when_looked_up_then_an_object_is_the_inner_ones(
    made: Callable[[ProfileRoot], JobRecord],
) -> None:
    places = known(made(OUTER), made(INNER))
    assert places.root_above(BUCKET, "team/runs/job-1/logs/rank3/n.pt.trace.json") == INNER
    assert places.root_above(BUCKET, "team/runs/job-2/n.pt.trace.json") == OUTER


def test_given_the_folder_of_a_job_in_another_place_when_looked_up_then_its_name_alone_is_not_enough() -> None:
    places = known(of_sagemaker(INNER), of_sagemaker(ProfileRoot("", "job-9"), bucket="other"))
    for key in ("copies/job-1/n.pt.trace.json", "job-9/n.pt.trace.json", "n.pt.trace.json", "job-1.pt.trace.json"):
        assert places.root_above(BUCKET, key) is None
    assert places.root_above("other", "job-9/n.pt.trace.json") is None


def test_given_a_deep_key_when_looked_up_then_so_many_folders_are_asked_for_and_each_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = MemoryWorld()
    asked: list[str] = []
    load = world.jobs.load

    def watched(job: str) -> JobRecord | None:
        asked.append(job)
        return load(job)

    monkeypatch.setattr(world.jobs, "load", watched)
    places = KnownPlaces(world.jobs, BUCKET)
    for name in ("a", "b"):
        assert places.root_above(BUCKET, f"{'x/' * 30}{name}.pt.trace.json") is None
    assert len(asked) <= 2 * MOST_FOLDERS
