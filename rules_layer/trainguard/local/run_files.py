"""Where the files of a job's training lie: in a bucket, or in a folder that is read as one."""

from dataclasses import dataclass

from trainguard.layout import ProfileRoot
from trainguard.ports import ProfileObjects


@dataclass(frozen=True, slots=True)
class TrainingFiles:
    """A job's files of training in a bucket, or in a folder that is read as one.

    ``tensors`` says whether there is a debug-output, ``ended`` whether the mark of its end is there; ``scalars`` are
    the keys of files of scalars.
    """

    objects: ProfileObjects
    bucket: str
    root: ProfileRoot
    tensors: bool
    ended: bool
    scalars: tuple[str, ...] = ()
