"""The forms of context values, from ``-c`` or ``cdk.json``."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

_SIMILAR = 0.75
_CDKS_OWN = re.compile(r"[:/]")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


# The value of each feature flag of CDK that has to be chosen; the command line warns of one that is missing.
#
# All have the recommended value but two: policies keep their statements and actions in the order in which the
# constructs name them, and templates are for every partition. One lets a warning of CDK stop the synthesis.
FEATURE_FLAGS = Path(__file__).with_name("feature_flags.json")


def feature_flags() -> dict[str, object]:
    flags: dict[str, object] = json.loads(FEATURE_FLAGS.read_text(encoding="utf-8"))
    return flags


def of_command_line(pairs: Sequence[str], stored: Path) -> dict[str, object]:
    """Return the context as CDK puts it together: the file ``cdk.json``, and ``-c`` on top of it."""
    context: dict[str, object] = json.loads(stored.read_text(encoding="utf-8")).get("context", {})
    return {**context, **dict(pair.partition("=")[::2] for pair in pairs)}


@dataclass(frozen=True, slots=True)
class Form:
    """What a value looks like; ``read`` returns it, or raises ValueError with what would be right.

    ``pattern`` is of a whole text, or of each part of a list where ``is_list``; ``allowed`` are the only values, as
    texts, ``limits`` the least and greatest number.
    """

    read: Callable[[object], object]
    pattern: str | None = None
    is_list: bool = False
    allowed: tuple[str, ...] = ()
    limits: tuple[int, int] | None = None


def _boolean(value: object) -> bool:
    if value in (True, "true"):
        return True
    if value in (False, "false"):
        return False
    raise ValueError("true or false")


BOOLEAN = Form(_boolean, allowed=("true", "false"))


def integer(least: int, most: int) -> Form:
    def read(value: object) -> int:
        text = str(value)
        if isinstance(value, bool) or not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return int(text)

    return Form(read, limits=(least, most))


def one_of(*allowed: str | int) -> Form:
    """Return the form of a few values; a number may be given as text."""

    def read(value: object) -> str | int:
        for each in allowed:
            if not isinstance(value, bool) and str(value) == str(each):
                return each
        raise ValueError("one of " + ", ".join(map(str, allowed)))

    return Form(read, allowed=tuple(map(str, allowed)))


def matching(pattern: str, wanted: str) -> Form:
    """Return the form of a text that matches the whole of ``pattern``; ``wanted`` says so in words."""
    compiled = re.compile(pattern)

    def read(value: object) -> str:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            raise ValueError(wanted)
        return value

    return Form(read, pattern)


def listed(pattern: str, wanted: str, *, most: int | None = None) -> Form:
    """Return the form of a list, or text with commas, of at most ``most`` different parts that match ``pattern``."""
    compiled = re.compile(pattern)

    def read(value: object) -> tuple[str, ...]:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
            raise ValueError(wanted)
        found = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
        if not all(compiled.fullmatch(part) for part in found) or (most is not None and len(found) > most):
            raise ValueError(wanted)
        return found

    return Form(read, pattern, is_list=True)


def nearest(given: str, names: tuple[str, ...]) -> str | None:
    """Return the name that ``given`` was probably meant to be, or None; names with a colon or a slash are CDK's."""
    if given in names or _CDKS_OWN.search(given):
        return None
    plain = _HUMP.sub("_", given).lower().replace("-", "_")
    return next(iter(get_close_matches(plain, names, n=1, cutoff=_SIMILAR)), None)


def ecr_image(*, slashes: bool) -> Form:
    """Return the form of an image in ECR; functions of CloudFormation find no repository whose name has slashes."""
    repository = r"[a-z0-9][a-z0-9._/-]{0,255}" if slashes else r"[a-z0-9][a-z0-9._-]{0,255}"
    return matching(
        rf"\d{{12}}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(\.cn)?/{repository}(:[\w.-]{{1,128}}|@sha256:[0-9a-f]{{64}})",
        "an image in ECR with its tag or digest" + ("" if slashes else ", in a repository without slashes"),
    )
