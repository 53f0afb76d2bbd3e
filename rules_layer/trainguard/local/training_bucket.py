"""What a job saved of its training below a prefix in S3."""

from trainguard.adapters.clients import Clients
from trainguard.adapters.s3_objects import S3ProfileObjects
from trainguard.errors import ForeignKeyError, ObjectMissingError, ProfileSourceError
from trainguard.families.training.keys import SCALAR_FOLDERS, ScalarKey, match_key
from trainguard.layout import EndKey, ProfileRoot
from trainguard.local.bucket import SCHEME, BucketSource
from trainguard.local.no_profile import NoProfile
from trainguard.local.profile import safe_name
from trainguard.local.run_files import TrainingFiles
from trainguard.ports import ProfileObjects
from trainguard.tensors.debug.keys import FOLDER, TensorKey, run_prefix


def training_beside(source: BucketSource) -> TrainingFiles | None:
    """Return what a job saved beside its profile; None where there is nothing.

    Raises PortUnavailableError when S3 does not answer.
    """
    above = source.prefix.rstrip("/").rpartition("/")[0]
    return _found(source.objects, source.bucket, above) if above else None


def open_training(place: str, clients: Clients | None = None) -> tuple[NoProfile, TrainingFiles] | None:
    """Find the training of a job without a profile at ``s3://bucket/prefix``: its folder, or its debug-output.

    Raises PortUnavailableError when S3 does not answer.
    """
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

    return NoProfile(f"{SCHEME}{bucket}/{job}", job.rpartition("/")[2], beside), found


def _found(objects: ProfileObjects, bucket: str, job: str) -> TrainingFiles | None:
    """Look for the files of the job whose folder has the key prefix ``job``."""
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
