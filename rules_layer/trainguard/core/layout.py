"""Where the objects of a job lie in a bucket. A key comes from outside and may be hostile."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from urllib.parse import quote, unquote

from trainguard.core.errors import ForeignKeyError
from trainguard.core.text import is_plain

MAX_KEY_LENGTH = 1_024
RESULTS_FOLDER = "rule-output"
S3 = "s3://"

_LONGEST_PREFIX = 200
"""A longer prefix is cut, and followed by its hash."""

FUTURE_S = 3_600.0
"""A name this far ahead of its object's LastModified is no time: it must not make every real minute late."""

JOB_NAME = r"(?P<job>[A-Za-z0-9](?:-*[A-Za-z0-9]){0,62})"
"""Pattern with the group ``job``."""

JOB_ROOT = rf"(?P<prefix>(?:[^/]+/)*){JOB_NAME}"
"""Pattern of ``<prefix><job>`` with the groups of `root_of`."""

_JOB_FILE = re.compile(rf"(?P<prefix>(?:(?!profiler-output/)[^/]+/)*)(?!profiler-output/){JOB_NAME}/job\.json")


@dataclass(frozen=True, slots=True)
class ProfileRoot:
    """Where a job's profile lies: ``<prefix><job>/profiler-output/``; ``prefix`` is empty or ends in a slash."""

    prefix: str
    job: str

    @classmethod
    def of_job(cls, prefix: str, name: str) -> "ProfileRoot":
        """Return a job's root from its place's prefix and its name, SageMaker's or that of a place."""
        return cls(prefix, name.replace(_at(prefix), "", 1) if prefix else name)

    @classmethod
    def named(cls, name: str) -> "ProfileRoot":
        """Return a job's root as far as its name says where it lies."""
        job, _, place = name.partition("@")
        prefix = unquote(place)
        return cls(prefix, job) if prefix and _at(prefix) == f"@{place}" else cls("", name)

    @property
    def place_name(self) -> str:
        """Name of the job of this place while SageMaker does not know it."""
        return f"{self.job}{_at(self.prefix)}" if self.prefix else self.job

    @property
    def folder(self) -> str:
        return f"{self.prefix}{self.job}/"

    @property
    def system(self) -> str:
        return f"{self.prefix}{self.job}/profiler-output/system/incremental/"

    @property
    def framework_all(self) -> str:
        """Key prefix of all that frameworks write: timelines, and traces of TensorFlow's profiler after them."""
        return f"{self.prefix}{self.job}/profiler-output/framework/"

    @property
    def framework(self) -> str:
        return f"{self.framework_all}pevents/"

    @property
    def tensorflow(self) -> str:
        return f"{self.framework_all}tensorflow/detailed_profiling/"

    @property
    def job_file(self) -> str:
        """Key of the file by which a job outside SageMaker says what it is."""
        return f"{self.prefix}{self.job}/job.json"

    @property
    def collector(self) -> str:
        """Key prefix of what the collector says about itself."""
        return f"{self.folder}collector/"

    @property
    def report(self) -> str:
        return f"{self.prefix}{self.job}/rule-output/TrainGuardReport/"


@dataclass(frozen=True, slots=True)
class EndKey:
    """Marks the end of a job's stream; ``unit`` is the one unit that writes it, None where each ends itself."""

    root: ProfileRoot
    stream: str
    unit: str | None = None


def is_future(named_at: float | None, last_modified: float) -> bool:
    """Whether an object's name lies more than an hour ahead of the time at which S3 got it (epoch seconds)."""
    return named_at is not None and named_at > last_modified + FUTURE_S


def check_key(key: str) -> None:
    """Raise ForeignKeyError, with the reason, for a key that no family reads."""
    if len(key) > MAX_KEY_LENGTH:
        raise ForeignKeyError(key[:80] + "…", f"{len(key)} characters long, expected at most {MAX_KEY_LENGTH}")
    if not is_plain(key):
        raise ForeignKeyError(key, "holds a line break, or a character that is not seen")
    if RESULTS_FOLDER in key.split("/"):
        raise ForeignKeyError(key, "lies under rule-output, which holds results and not profiles")


def root_of(match: re.Match[str]) -> ProfileRoot:
    return ProfileRoot(match["prefix"], match["job"])


def parse_job_file_key(key: str) -> ProfileRoot | None:
    """Return whose job file a key is; None for any other object."""
    if len(key) > MAX_KEY_LENGTH or not is_plain(key) or RESULTS_FOLDER in key.split("/"):
        return None
    match = _JOB_FILE.fullmatch(key)
    return None if match is None else root_of(match)


def hour_folder(epoch_s: int) -> str:
    """Return the UTC hour folder ``YYYYMMDDHH`` of a time in epoch seconds."""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y%m%d%H")


@lru_cache(maxsize=256)
def _at(prefix: str) -> str:
    """Escape a prefix to letters, digits and ``/ = + _ - % ~``, so that the name can be pasted into a shell."""
    encoded = quote(prefix, safe="/=+").replace(".", "%2E").replace("~", "%7E")
    if len(encoded) > _LONGEST_PREFIX:
        encoded = f"{encoded[: _LONGEST_PREFIX - 40]}~{sha256(prefix.encode()).hexdigest()[:32]}/"
    return f"@{encoded}"
