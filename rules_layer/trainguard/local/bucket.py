"""A prefix in S3 as the place of a profile."""

from collections.abc import Iterable
from functools import partial

from trainguard.aws.aws_errors import translated
from trainguard.aws.clients import Clients
from trainguard.aws.s3_objects import S3ProfileObjects
from trainguard.core.errors import ForeignKeyError, ObjectMissingError, PortUnavailableError, ProfileSourceError
from trainguard.core.layout import EndKey, ProfileRoot
from trainguard.core.ports import BucketFiles, Files, ListedObject, ProfileObjects
from trainguard.engine.training.keys import SCALAR_FOLDERS, ScalarKey, match_key
from trainguard.formats.tensors.debug.keys import FOLDER, TensorKey, run_prefix
from trainguard.local.profile import TrainingFiles
from trainguard.local.sources import (
    PROFILER_OUTPUT,
    RESULTS,
    S3,
    STREAMS,
    ProfileSource,
    only_root,
    safe_name,
    source_in_memory,
)


def open_bucket(place: str, clients: Clients | None = None) -> ProfileSource:
    """Find the profile at, directly in, or below ``s3://bucket/prefix``, as `open_folder` does on disk.

    ``clients`` are by default those of the environment's credentials and Region. Raises ProfileSourceError when the
    prefix cannot be listed, is empty, or lies above several profiles; NoProfileError when there is no profile in it.
    """
    bucket, _, path = place.removeprefix(S3).partition("/")
    if not bucket:
        raise ProfileSourceError(place, "names no bucket, expected s3://bucket/prefix")
    prefix = f"{path.strip('/')}/" if path.strip("/") else ""
    try:
        with translated("S3", "client"):
            objects = S3ProfileObjects(client=(clients or Clients()).s3)
        listed = list(objects.list(bucket, prefix, ""))
    except PortUnavailableError as fault:
        raise ProfileSourceError(place, f"cannot be listed: {fault}") from fault
    if not listed:
        raise ProfileSourceError(place, "holds no object, expected a profile")
    root = only_root(place, sorted(_roots(prefix, listed)))
    sizes = {each.key.removeprefix(root): each.size for each in listed if each.key.startswith(root)}
    above = root.rstrip("/").rpartition("/")[0]
    return ProfileSource(
        place=f"{S3}{bucket}/{root}".rstrip("/"),
        job=above.rpartition("/")[2],
        files=BucketFiles(objects, bucket, root),
        sizes=sizes,
        beside=partial(_beside, BucketFiles(objects, bucket, f"{above}/" if above else "")),
    )


def _beside(files: Files, name: str, max_bytes: int) -> bytes | None:
    try:
        return files.get(name, max_bytes)
    except ObjectMissingError:
        return None


def _roots(prefix: str, listed: Iterable[ListedObject]) -> set[str]:
    """Return the place itself if it is a profile, else those below."""
    found = set()
    for each in listed:
        folders = each.key.removeprefix(prefix).split("/")[:-1]
        if folders and folders[0] in STREAMS:
            return {prefix}
        if PROFILER_OUTPUT in folders[:-1] and RESULTS not in folders:
            place = folders.index(PROFILER_OUTPUT)
            if folders[place + 1] in STREAMS:
                found.add(prefix + "/".join(folders[: place + 1]) + "/")
    direct = f"{prefix}{PROFILER_OUTPUT}/"
    return {direct} if direct in found else found


def job_of(files: BucketFiles) -> str:
    """Return the key prefix of the job above a profile, without its slash; empty where there is none."""
    return files.prefix.rstrip("/").rpartition("/")[0]


def open_training(place: str, clients: Clients | None = None) -> tuple[ProfileSource, TrainingFiles] | None:
    """Find the training of a job without a profile: its folder, or its debug-output. Raises PortUnavailableError."""
    bucket, _, path = place.removeprefix(S3).partition("/")
    job = path.strip("/").removesuffix(f"/{FOLDER}")
    objects = S3ProfileObjects(client=(clients or Clients()).s3)
    found = training_below(objects, bucket, job) if job else None
    if found is None:
        return None
    beside = partial(_beside, BucketFiles(objects, bucket, f"{job}/"))
    return source_in_memory(f"{S3}{bucket}/{job}", job.rpartition("/")[2], {}, beside), found


def training_below(objects: ProfileObjects, bucket: str, job: str) -> TrainingFiles | None:
    """Return what the job with key prefix ``job`` saved of its training, or None; raises PortUnavailableError."""
    prefix, _, name = job.rpartition("/")
    if safe_name(name) != name:
        raise ProfileSourceError(f"{S3}{bucket}/{job}", f"{name!r} is no name of a training job")
    root = ProfileRoot(f"{prefix}/" if prefix else "", name)
    tensors = ended = False
    for listed in objects.list(bucket, run_prefix(root), ""):
        try:
            parsed = match_key(listed.key)
        except ForeignKeyError:
            continue
        ended = ended or isinstance(parsed, EndKey)
        tensors = tensors or isinstance(parsed, TensorKey)
    scalars = tuple(
        listed.key
        for folder in SCALAR_FOLDERS
        for listed in objects.list(bucket, f"{root.folder}{folder}/", "")
        if isinstance(match_key(listed.key), ScalarKey)
    )
    if not (tensors or ended or scalars):
        return None
    return TrainingFiles(objects, bucket, root, tensors or ended, ended, scalars)
