"""Which files hold scalars, by their names."""

import re
from dataclasses import dataclass
from typing import Literal

SourceKind = Literal["events", "trainer_state", "csv"]

_KINDS: tuple[tuple[SourceKind, re.Pattern[str]], ...] = (
    ("events", re.compile(r"(?P<folder>(?:[^/]+/)*)[^/]*tfevents[^/]*")),
    ("trainer_state", re.compile(r"(?P<folder>(?:[^/]+/)*)trainer_state\.json")),
    (
        "csv",
        re.compile(
            r"(?P<folder>(?:[^/]+/)*)(?:[^/]*(?:metrics|log|history|training|scalars|progress)[^/]*\.csv|results\.csv|"
            r"(?:train|training|history|metrics)\.log)",
            re.IGNORECASE,
        ),
    ),
)
_DEBUG_OUTPUT = "debug-output"


@dataclass(frozen=True, slots=True)
class ScalarFile:
    """A file of scalars: ``folder`` is where it lies, below the place that is looked at, without a last slash."""

    name: str
    kind: SourceKind
    folder: str

    @property
    def source(self) -> str:
        """What its steps follow those of: the other event files of its folder, else the file alone."""
        return self.folder if self.kind == "events" else self.name


def match_scalar_file(name: str) -> ScalarFile | None:
    """Return which file of scalars a name is; None of any other, and of the event files of debug-output."""
    if _DEBUG_OUTPUT in name.split("/"):
        return None
    for kind, pattern in _KINDS:
        if match := pattern.fullmatch(name):
            return ScalarFile(name, kind, match["folder"].rstrip("/"))
    return None
