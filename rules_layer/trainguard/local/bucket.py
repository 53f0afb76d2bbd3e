"""A prefix in S3 as the place of a profile."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trainguard.aws.aws_errors import translated
from trainguard.aws.clients import Clients
from trainguard.aws.s3_objects import S3ProfileObjects
from trainguard.core.errors import ForeignKeyError, ObjectMissingError, PortUnavailableError, ProfileSourceError
from trainguard.core.layout import EndKey, ProfileRoot
from trainguard.core.ports import ByteStream, ListedObject, ProfileObjects
from trainguard.engine.training.keys import SCALAR_FOLDERS, ScalarKey, match_key
from trainguard.formats.profile.system import MAX_OBJECT_BYTES
from trainguard.formats.tensors.debug.keys import FOLDER, TensorKey, run_prefix
from trainguard.local.profile import TrainingFiles, safe_name
from trainguard.local.sources import PROFILER_OUTPUT, RESULTS, STREAMS, MemorySource, only_root

SCHEME = "s3://"


@dataclass(frozen=True, slots=True)
class BucketSource:
    """A profile in S3: ``prefix`` ends in a slash, or is empty."""

    objects: ProfileObjects
    bucket: str
    prefix: str
    sizes: Mapping[str, int]

    @property
    def place(self) -> str:
        """The profile's URI."""
        return f"{SCHEME}{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def job(self) -> str:
        """The name above ``profiler-output`` in the prefix."""
        parts = self.prefix.rstrip("/").split("/")
        return parts[-2] if len(parts) > 1 else ""

    def names(self) -> Sequence[str]:
        """Return the names of all objects, in order."""
        return list(self.sizes)

    def size(self, name: str) -> int:
        """Return the bytes of an object as it was listed."""
        return self.sizes[name]

    def read(self, name: str) -> bytes:
        """Return an object's content."""
        return self.objects.get(self.bucket, self.prefix + name, MAX_OBJECT_BYTES)

    def open(self, name: str) -> ByteStream:
        """Open an object to be read from the front."""
        return self.objects.open_stream(self.bucket, self.prefix + name)

    def read_range(self, name: str, start: int, length: int) -> bytes:
        """Return up to ``length`` bytes from offset ``start`` on."""
        return self.objects.get_range(self.bucket, self.prefix + name, start, length)

    def beside(self, name: str, max_bytes: int) -> bytes | None:
        """Return what an object beside the prefix holds; raises PortUnavailableError where it cannot be read."""
        above = self.prefix.rstrip("/").rpartition("/")[0]
        try:
            return self.objects.get(self.bucket, f"{above}/{name}" if above else name, max_bytes)
        except ObjectMissingError:
            return None


def open_bucket(place: str, clients: Clients | None = None) -> BucketSource:
    """Find the profile at, directly in, or below ``s3://bucket/prefix``, as `open_folder` does on disk.

    ``clients`` are by default those of the environment's credentials and Region. Raises ProfileSourceError when the
    prefix cannot be listed, is empty, or lies above several profiles; NoProfileError when there is no profile in it.
    """
    bucket, _, path = place.removeprefix(SCHEME).partition("/")
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
    return BucketSource(objects, bucket, root, sizes)


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


def training_beside(source: BucketSource) -> TrainingFiles | None:
    """Return what a job saved beside its profile; None where there is nothing. Raises PortUnavailableError."""
    above = source.prefix.rstrip("/").rpartition("/")[0]
    return _found(source.objects, source.bucket, above) if above else None


def open_training(place: str, clients: Clients | None = None) -> tuple[MemorySource, TrainingFiles] | None:
    """Find the training of a job without a profile: its folder, or its debug-output. Raises PortUnavailableError."""
    bucket, _, path = place.removeprefix(SCHEME).partition("/")
    job = path.strip("/").removesuffix(f"/{FOLDER}")
    objects = S3ProfileObjects(client=(clients or Clients()).s3)
    found = _found(objects, bucket, job) if job else None
    if found is None:
        return None

    def beside(name: str, max_bytes: int) -> bytes | None:
        try:
            return objects.get(bucket, f"{job}/{name}", max_bytes)
        except ObjectMissingError:
            return None

    return MemorySource(f"{SCHEME}{bucket}/{job}", job.rpartition("/")[2], beside), found


def _found(objects: ProfileObjects, bucket: str, job: str) -> TrainingFiles | None:
    prefix, _, name = job.rpartition("/")
    if safe_name(name) != name:
        raise ProfileSourceError(f"{SCHEME}{bucket}/{job}", f"{name!r} is no name of a training job")
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
