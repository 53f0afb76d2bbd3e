"""A folder or an ``s3://`` URI to the profile there. What reads S3 is imported only where a place is in S3."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trainguard.core.errors import NoProfileError
from trainguard.core.ports import BucketFiles
from trainguard.local.kernels import find_traces, traces_below
from trainguard.local.profile import Profile, empty_profile, read_profile
from trainguard.local.recordings import RecordedRun, is_recording, recording_at
from trainguard.local.sources import PROFILER_OUTPUT, ProfileSource, open_folder, read_beside, source_in_memory
from trainguard.local.training_files import find_training

if TYPE_CHECKING:
    from trainguard.aws.clients import Clients

S3 = "s3://"


def open_place(place: str, clients: "Clients | None" = None) -> ProfileSource:
    """Find the profile at a folder or ``s3://bucket/prefix``; raises ProfileSourceError, NoProfileError."""
    if not place.startswith(S3):
        return open_folder(place)
    from trainguard.local.bucket import open_bucket

    return open_bucket(place, clients)


def open_job(place: str, clients: "Clients | None" = None) -> Profile:
    """Find what a job wrote at a place: its profile, or an empty one, and what it saved of its training.

    A place may be a run that another tool recorded (docs/sources.md). NoProfileError says that there is neither.
    """
    if place.startswith(S3):
        return _job_in_bucket(place, clients)
    return _recorded(place) if is_recording(place) else _job_in_folder(place)


def _recorded(place: str) -> Profile:
    recording = recording_at(place)
    if recording is None:
        open_folder(place)  # Says what a file is that no command reads.
        raise NoProfileError(place)
    return _opened(recording)


def _opened(recording: RecordedRun) -> Profile:
    from trainguard.local.recordings import open_run

    return open_run(recording)


def _job_in_folder(place: str) -> Profile:
    try:
        source = open_folder(place)
    except NoProfileError:
        recording = recording_at(place)
        if recording is not None:
            return _opened(recording)
        found = find_training(place)
        if found is None:
            raise
        beside = partial(read_beside, found.job)
        empty = empty_profile(source_in_memory(str(found.place), found.job.resolve().name, {}, beside), found.files)
        return replace(empty, kernels=find_traces(found.job))
    root = Path(source.place)
    found = find_training(place, root)
    job = root.resolve().parent if root.name == PROFILER_OUTPUT else root
    return replace(read_profile(source), training=None if found is None else found.files, kernels=find_traces(job))


def _job_in_bucket(place: str, clients: "Clients | None") -> Profile:
    from trainguard.local.bucket import job_of, open_bucket, open_training, training_below

    try:
        source = open_bucket(place, clients)
    except NoProfileError:
        opened = open_training(place, clients)
        if opened is None:
            raise
        none, training = opened
        return replace(
            empty_profile(none, training),
            kernels=traces_below(training.objects, training.bucket, training.root.folder[:-1]),
        )
    profile, files = read_profile(source), source.files
    if not isinstance(files, BucketFiles) or not (job := job_of(files)):
        return profile
    training = training_below(files.objects, files.bucket, job)
    return replace(profile, training=training, kernels=traces_below(files.objects, files.bucket, job))
