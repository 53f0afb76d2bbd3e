"""The line of a person's own code in a stack, and what a process does there."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from trainguard.formats.hangs.stacks import Frame, ThreadStack

_LIBRARY = re.compile(
    r"(?:site|dist)-packages[/\\]|[/\\]lib(?:64)?[/\\]python3\.\d+[/\\]|[/\\]pytorch[/\\]torch[/\\]|^<|^\?\?"
)
# py-spy writes files below Python's path without it: ``threading.py``, ``torch/nn/modules/module.py``.
_PACKAGES = sys.stdlib_module_names | {
    "accelerate",
    "deepspeed",
    "lightning",
    "megatron",
    "numpy",
    "torch",
    "transformers",
}

_WHILE = {
    "communication": r"distributed_c10d|\btorch[/\\]distributed[/\\]c10d|c10d_logger",
    "data": r"torch[/\\]utils[/\\]data|_next_data|_try_get_data|\bdatasets?[/\\]|webdataset",
    "checkpoint": r"\bserialization\.py|torch[/\\]distributed[/\\]checkpoint|save_pretrained|safetensors",
    "lock": r"\bthreading\.py|\bqueue\.py|filelock|fcntl|synchronize\.py|multiprocessing[/\\]connection",
    "network": r"\bsocket\.py|\bssl\.py|urllib3|\brequests[/\\]|botocore|http[/\\]client",
}
_FORMS = {doing: re.compile(form) for doing, form in _WHILE.items()}


class Doing(StrEnum):
    """What a stack says that a process does; OWN_CODE where none of the others is in it."""

    COMMUNICATION = "communication"
    DATA = "data"
    CHECKPOINT = "checkpoint"
    LOCK = "lock"
    NETWORK = "network"
    OWN_CODE = "own_code"


@dataclass(frozen=True, slots=True)
class Place:
    """The innermost line of a person's own code, ``file:line function``, and what is done there."""

    line: str
    doing: Doing


def place_of(stack: ThreadStack) -> Place:
    """Return where a process stands."""
    own = next((each for each in stack.frames if not _is_library(each.file)), stack.frames[0])
    called = stack.frames[: stack.frames.index(own) + 1]
    return Place(str(own), _doing(called))


def _doing(called: Sequence[Frame]) -> Doing:
    found = (doing for doing, form in _FORMS.items() if any(form.search(str(each)) for each in called))
    return Doing(next(found, Doing.OWN_CODE))


def own_line(where: Sequence[str]) -> str:
    """Return the innermost line of a person's own code of the frames of an operation, or nothing."""
    return next((each for each in where if not _is_library(each)), "")


def _is_library(file: str) -> bool:
    first = re.split(r"[/\\:]", file, maxsplit=1)[0].removesuffix(".py")
    return first in _PACKAGES or _LIBRARY.search(file) is not None
