"""Where the files of captures lie: below the job's report, a folder a capture."""

import hashlib
import re
from dataclasses import dataclass

from trainguard.layout import ProfileRoot

FOLDER = "kernels/"
DIGESTS = f"{FOLDER}digests/"
RUNS = f"{FOLDER}runs/"
PAGE, DOCUMENT, VERDICT = "kernels.html", "kernels.json", "verdict.json"
FILES = {PAGE: "text/html; charset=utf-8", DOCUMENT: "application/json", VERDICT: "application/json"}
"""The files of a capture by name, with their content types."""


_RUN_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
_CAPTURE_NAME = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}")


def verdict_key(root: ProfileRoot, capture: str) -> str:
    """Return the key of a capture's verdict."""
    return capture_folder(root, capture) + VERDICT


def capture_folder(root: ProfileRoot, capture: str) -> str:
    """Return where a capture's page, document and verdict lie; ValueError for a name that is no capture's."""
    if not _CAPTURE_NAME.fullmatch(capture):
        raise ValueError(f"capture {capture!r}, expected a name such as 20260714T093000Z-0123abcd")
    return f"{root.report}{FOLDER}{capture}/"


@dataclass(frozen=True, slots=True)
class DigestPlace:
    """The keys of a trace's digests: other ones for another trace, size of the timeline, or version of the form."""

    brief: str
    full: str


def digest_place(root: ProfileRoot, key: str, etag: str, rows: int, form: int) -> DigestPlace:
    """Return where the digests of a trace lie."""
    name = hashlib.sha256(f"{key}\n{etag}\n{rows}\n{form}".encode()).hexdigest()[:32]
    folder = f"{root.report}{DIGESTS}"
    return DigestPlace(f"{folder}{name}-brief.json", f"{folder}{name}-full.json")


def run_folder(root: ProfileRoot, run: str) -> str:
    """Return where an execution's lists lie; ValueError for a name that is none of an execution."""
    if not _RUN_NAME.fullmatch(run):
        raise ValueError(f"run {run!r}, expected the name of an execution")
    return f"{root.report}{RUNS}{run}/"
