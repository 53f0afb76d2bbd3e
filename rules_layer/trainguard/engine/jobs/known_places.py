"""Whose an object is, where its key does not say it: the innermost folder above it that is known to be a job's."""

import re

from trainguard.engine.jobs.job_registry import job_of_place
from trainguard.layout import JOB_NAME, ProfileRoot
from trainguard.stores import Jobs

MOST_FOLDERS = 13
"""Folders above an object that are looked up, from the innermost one on."""

_NAME = re.compile(JOB_NAME)


class KnownPlaces:
    """The jobs' folders of one bucket, as far as the table has them; each is looked up once."""

    def __init__(self, jobs: Jobs, bucket: str) -> None:
        self._jobs = jobs
        self._bucket = bucket
        self._known: dict[ProfileRoot, bool] = {}

    def root_above(self, bucket: str, key: str) -> ProfileRoot | None:
        """Return the root of the innermost job's folder above an object; None where no folder above it is a job's.

        Raises
        ------
        PortUnavailableError
            When the table did not answer.
        """
        if bucket != self._bucket:
            return None
        folders = key.split("/")[:-1]
        for depth in range(len(folders), max(len(folders) - MOST_FOLDERS, 0), -1):
            *above, name = folders[:depth]
            root = ProfileRoot("".join(f"{each}/" for each in above), name)
            if _NAME.fullmatch(name) and self._is_known(root):
                return root
        return None

    def _is_known(self, root: ProfileRoot) -> bool:
        if root not in self._known:
            record = job_of_place(self._jobs, self._bucket, root)
            self._known[root] = record is not None and (record.bucket, record.root) == (self._bucket, root)
        return self._known[root]
