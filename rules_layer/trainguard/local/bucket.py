"""A prefix in S3 as the place of a profile."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO

from trainguard.aws.aws_errors import translated
from trainguard.aws.clients import Clients
from trainguard.aws.s3_objects import S3ProfileObjects
from trainguard.core.errors import (
    NoProfileError,
    ObjectMissingError,
    PortUnavailableError,
    ProfileSourceError,
    UnreadableKeyError,
)
from trainguard.core.layout import S3, ProfileRoot
from trainguard.core.ports import BucketFiles, ByteStream, Files, ListedObject, ReadableObjects
from trainguard.engine.training.stream import SCALAR_FOLDERS, match_key
from trainguard.formats.runs.run import SourceRun
from trainguard.formats.runs.wandb.run_file import read_run_file
from trainguard.formats.tensors.debug.keys import FOLDER, run_prefix
from trainguard.formats.tensors.scalars.names import ScalarNames, match_scalar_file
from trainguard.formats.tensors.scalars.run_folders import WRITTEN_TWICE, main_tag, run_name, runs_of
from trainguard.formats.tensors.scalars.trainer_files import is_history
from trainguard.local.hangs import dumps_below
from trainguard.local.kernels import traces_below
from trainguard.local.profile import FoundRun, Profile, TrainingFiles, empty_profile, read_profile
from trainguard.local.recorded_run import open_run
from trainguard.local.sources import (
    PROFILER_OUTPUT,
    RESULTS,
    STREAMS,
    ProfileSource,
    RecordedRun,
    only_root,
    safe_name,
    source_in_memory,
)
from trainguard.local.training_files import runs_among, scalar_key, training_of


def open_bucket(place: str, clients: Clients | None = None) -> ProfileSource:
    """Find the profile at, directly in, or below ``s3://bucket/prefix``, as `open_folder` does on disk.

    ``clients`` are by default those of the environment's credentials and Region. Raises ProfileSourceError when the
    prefix cannot be listed, is empty, or lies above several profiles; NoProfileError when there is no profile in it.
    """
    bucket, path = _split(place)
    prefix = f"{path.strip('/')}/" if path.strip("/") else ""
    objects, listed = _listed(place, prefix, clients)
    if not listed:
        raise ProfileSourceError(place, "holds no object, expected a profile")
    root = only_root(place, sorted(_roots(prefix, listed)))
    sizes = {each.key.removeprefix(root): each.size for each in listed if each.key.startswith(root)}
    job = _job_of(root)
    return ProfileSource(
        place=f"{S3}{bucket}/{root}".rstrip("/"),
        job=job.rpartition("/")[2] or bucket,
        files=BucketFiles(objects, bucket, root),
        sizes=sizes,
        beside=partial(_beside, BucketFiles(objects, bucket, f"{job}/" if job else "")),
    )


def _split(place: str) -> tuple[str, str]:
    bucket, _, path = place.removeprefix(S3).partition("/")
    if not bucket:
        raise ProfileSourceError(place, "names no bucket, expected s3://bucket/prefix")
    return bucket, path


def _objects(clients: Clients | None) -> S3ProfileObjects:
    with translated("S3", "client"):
        return S3ProfileObjects(client=(clients or Clients()).s3)


def _listed(place: str, prefix: str, clients: Clients | None) -> tuple[S3ProfileObjects, list[ListedObject]]:
    try:
        objects = _objects(clients)
        return objects, list(objects.list(_split(place)[0], prefix, ""))
    except PortUnavailableError as fault:
        raise ProfileSourceError(place, f"cannot be listed: {fault}") from fault


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


def _job_of(root: str) -> str:
    """Return the key prefix of a profile's job, without its slash; empty where the bucket holds the profile itself."""
    above, _, folder = root.rstrip("/").rpartition("/")
    return above if folder == PROFILER_OUTPUT else root.rstrip("/")


def open_job(place: str, clients: Clients | None = None) -> Profile:
    """Open the one job at, in or below a prefix: its profile, or what it saved of its training.

    Raises as `open_bucket` does.
    """
    try:
        source = open_bucket(place, clients)
    except NoProfileError:
        bucket, path = _split(place)
        job = path.rstrip("/").removesuffix(f"/{FOLDER}")
        objects = _objects(clients)
        found = _training_below(objects, bucket, job) if job else None
        if found is None:
            raise
        beside = partial(_beside, BucketFiles(objects, bucket, f"{job}/"))
        empty = source_in_memory(f"{S3}{bucket}/{job}", job.rpartition("/")[2], {}, beside)
        return replace(empty_profile(empty, found), kernels=traces_below(objects, bucket, job))
    profile, files = read_profile(source), source.files
    job = _job_of(files.prefix) if isinstance(files, BucketFiles) else ""
    if not isinstance(files, BucketFiles) or not job:
        return profile
    saved = _training_below(files.objects, files.bucket, job)
    kernels = traces_below(files.objects, files.bucket, job)
    hang = dumps_below(files.objects, files.bucket, job)
    return replace(profile, training=saved, kernels=kernels, hang=hang)


def _training_below(objects: ReadableObjects, bucket: str, job: str) -> TrainingFiles | None:
    """Return what the job with key prefix ``job`` saved of its training, or None; raises PortUnavailableError."""
    prefix, _, name = job.rpartition("/")
    if safe_name(name) != name:
        raise ProfileSourceError(f"{S3}{bucket}/{job}", f"{name!r} is no name of a training job")
    root = ProfileRoot(f"{prefix}/" if prefix else "", name)
    prefixes = (run_prefix(root), *(f"{root.folder}{folder}/" for folder in SCALAR_FOLDERS))
    keys = (listed.key for prefix in prefixes for listed in objects.list(bucket, prefix, ""))
    found = training_of(objects, bucket, root, keys)
    return found if found.tensors or found.scalars else None


MOST_WANDB_BYTES = 96 * 1024 * 1024
# Tables of which the first line is read.
_MOST_TABLES = 200

_LONGEST_HEADER = 64 * 1024


@dataclass(frozen=True, slots=True)
class NamedObjects:
    """Objects of a bucket by other keys, read only."""

    objects: ReadableObjects
    bucket: str
    keys: Mapping[str, ListedObject]

    def get(self, bucket: str, key: str, max_bytes: int) -> bytes:
        del bucket
        return self.objects.get(self.bucket, self._key(key), max_bytes)

    def get_range(self, bucket: str, key: str, start: int, length: int) -> bytes:
        del bucket
        return self.objects.get_range(self.bucket, self._key(key), start, length)

    def open_stream(self, bucket: str, key: str) -> ByteStream:
        del bucket
        return self.objects.open_stream(self.bucket, self._key(key))

    def list(self, bucket: str, prefix: str, start_after: str) -> Iterator[ListedObject]:
        del bucket
        names = sorted(key for key in self.keys if key.startswith(prefix) and key > start_after)
        return (replace(self.keys[key], key=key) for key in names)

    def _key(self, key: str) -> str:
        if key not in self.keys:
            raise ObjectMissingError(self.bucket, key)
        return self.keys[key].key


def bucket_runs(place: str, clients: Clients | None = None) -> list[FoundRun]:
    """Return the runs at a prefix or an object; raises NoProfileError, ProfileSourceError."""
    bucket, path = _split(place)
    objects, below = _listed(place, path.rstrip("/"), clients)
    listed = [each for each in below if _is_at(each.key, path)]
    if not listed:
        raise ProfileSourceError(place, "holds no object, expected a profile or runs")
    top = path if path.endswith("/") or not path else f"{path}/"
    if listed[0].key == path and not path.endswith("/"):
        top = f"{path.rpartition('/')[0]}/" if "/" in path else ""
    jobs = {job for each in listed if (job := _job_at(each.key)) is not None}
    if any(top.startswith(f"{job}/") for job in jobs):
        return [FoundRun(place, partial(open_job, place, clients))]
    found = [FoundRun(f"{S3}{bucket}/{job}", partial(open_job, f"{S3}{bucket}/{job}", clients)) for job in sorted(jobs)]
    rest = [each for each in listed if not any(each.key.startswith(f"{job}/") for job in _above(each.key, jobs))]
    found += _recorded(objects, bucket, rest)
    found += _scalars(objects, bucket, top, rest)
    if not found:
        kinds = Counter(f".{each.key.rpartition('.')[2]}" if "." in each.key else "without an ending" for each in rest)
        raise NoProfileError(place, met=", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common(5)))
    return found


def _is_at(key: str, path: str) -> bool:
    return key == path or not path or key.startswith(path if path.endswith("/") else f"{path}/")


def _above(key: str, jobs: Set[str]) -> Iterator[str]:
    parts = key.split("/")[:-1]
    return (job for end in range(1, len(parts) + 1) if (job := "/".join(parts[:end])) in jobs)


def _job_at(key: str) -> str | None:
    """Return the key prefix of the job that wrote an object where training jobs write; None of another object."""
    folders = key.split("/")[:-1]
    if RESULTS in folders:
        return None
    for place, folder in enumerate(folders):
        is_job = (folder == PROFILER_OUTPUT and place + 1 < len(folders) and folders[place + 1] in STREAMS) or (
            folder in _JOB_FOLDERS and _is_training(key)
        )
        if is_job and place:
            return "/".join(folders[:place])
    return None


_TABLES = (".csv", ".tsv", ".jsonl", ".ndjson")
_JOB_FOLDERS = frozenset({FOLDER, *SCALAR_FOLDERS})


def _is_training(key: str) -> bool:
    try:
        return match_key(key) is not None
    except UnreadableKeyError:
        return False


def _recorded(objects: ReadableObjects, bucket: str, listed: Iterable[ListedObject]) -> Iterator[FoundRun]:
    for each in listed:
        if each.key.endswith(".wandb"):
            place = f"{S3}{bucket}/{each.key}"
            recording = RecordedRun(place, partial(_read_wandb, objects, bucket, each.key))
            yield FoundRun(place, partial(open_run, recording), each.size, each.last_modified)


def _read_wandb(objects: ReadableObjects, bucket: str, key: str) -> SourceRun:
    body = objects.get(bucket, key, MOST_WANDB_BYTES)
    if len(body) > MOST_WANDB_BYTES:
        raise ProfileSourceError(f"{S3}{bucket}/{key}", f"is larger than {MOST_WANDB_BYTES:,} bytes: copy it to a disk")
    return read_run_file(key, BytesIO(body))


def _scalars(objects: ReadableObjects, bucket: str, top: str, listed: Sequence[ListedObject]) -> Iterator[FoundRun]:
    files = BucketFiles(objects, bucket, top)
    names = {each.key.removeprefix(top): each for each in listed if RESULTS not in each.key.split("/")}
    tables = [name for name in names if match_scalar_file(name) is None and name.lower().endswith(_TABLES)]
    tables = [name for name in tables if name.rpartition("/")[2] not in WRITTEN_TWICE]
    headed = {
        name for name in tables[:_MOST_TABLES] if is_history(files.get_range(name, 0, _LONGEST_HEADER), ScalarNames())
    }
    found = {name: each for name, each in names.items() if name in headed or match_scalar_file(name) is not None}
    for run, named in runs_of(found, partial(main_tag, files)).items():
        folder = f"{top}{run}".rstrip("/")
        opened = {name: found[path] for path, name in named.items()}
        apart = runs_among({name: partial(files.get, path) for path, name in named.items()})
        for name in sorted(apart):
            each = opened.pop(name)
            own = partial(_open_scalars, objects, bucket, each.key, {each.key.rpartition("/")[2]: each})
            yield FoundRun(f"{S3}{bucket}/{each.key}", own, 0, each.last_modified)
        if not opened:
            continue
        newest = max(each.last_modified for each in opened.values())
        yield FoundRun(f"{S3}{bucket}/{folder}", partial(_open_scalars, objects, bucket, folder, opened), 0, newest)


def _open_scalars(objects: ReadableObjects, bucket: str, folder: str, files: Mapping[str, ListedObject]) -> Profile:
    place, name = f"{S3}{bucket}/{folder}", run_name(folder) or bucket
    root = ProfileRoot("", safe_name(name))
    keys = {scalar_key(root, each): listed for each, listed in files.items()}
    training = TrainingFiles(NamedObjects(objects, bucket, keys), bucket, root, False, True, tuple(sorted(keys)))
    beside = partial(_beside, BucketFiles(objects, bucket, f"{folder}/" if folder else ""))
    return empty_profile(source_in_memory(place, name, {}, beside), training)
