"""Stacks of a snapshot: which frames a person wants to see, and what the program does there."""

import re
from collections.abc import Sequence
from typing import Any

from trainguard.kernels.memory.history import MOST_FRAMES, MemoryPhase, Place

# Frames of a stack, from the innermost one, that are looked at.
LOOKED_AT = 256

MOST_STACKS = 200_000
LONGEST_TEXT = 300

_OPTIMIZER_FILE = re.compile(r"[/\\]\w*optim(?:izers?)?\w*[/\\]")
_BACKWARD_NAME = re.compile(
    r"backward|_engine_run_backward|torch::autograd::(?:Engine|AccumulateGrad).*|.*Backward\d*::apply"
)
_SETUP_FILE = re.compile(r"torch[/\\]nn[/\\](?:parameter|init)\.py$")
_MODULE_FILE = re.compile(r"torch[/\\]nn[/\\]modules[/\\]\w+\.py$")
_SETUP_NAMES = {"_apply", "convert", "to", "cuda", "__init__", "reset_parameters"}
_LOADING_NAMES = {"from_pretrained", "load_state_dict", "_load_state_dict_into_model"}
_FUNCTION = re.compile(r"\.py:\d+ ")
_LIBRARY = re.compile(r"(?:^|[/\\])(?:torch|site-packages|dist-packages)[/\\]|^<|^\?\?")


class Frames:
    """The stacks of a snapshot, each once: a list that stands in many events is read once."""

    def __init__(self) -> None:
        self.places: list[Place] = [()]
        self.has_python = False
        self._numbers: dict[Place, int] = {(): 0}
        self._known: dict[int, tuple[Any, int, MemoryPhase]] = {}

    def place(self, frames: Any) -> tuple[int, MemoryPhase]:
        """Return the number of a stack, and its phase; `Phase.UNKNOWN` without a stack."""
        if not isinstance(frames, list | tuple) or not frames:
            return 0, MemoryPhase.UNKNOWN
        known = self._known.get(id(frames))
        if known is None:
            if len(self._known) >= MOST_STACKS:
                return 0, MemoryPhase.UNKNOWN
            # The stack is kept, so that its identity stays its own.
            known = self._known[id(frames)] = (frames, *self._read(frames))
        return known[1], known[2]

    def _read(self, frames: Sequence[Any]) -> tuple[int, MemoryPhase]:
        found = [
            (each["filename"][-LONGEST_TEXT:], each.get("line"), each["name"][:LONGEST_TEXT])
            for each in frames[:LOOKED_AT]
            if isinstance(each, dict) and isinstance(each.get("filename"), str) and isinstance(each.get("name"), str)
        ]
        python = [each for each in found if each[0].endswith(".py")]
        self.has_python = self.has_python or bool(python)
        shown = tuple(f"{file}:{line if type(line) is int else '?'} {name}" for file, line, name in python or found)
        place = shown[:MOST_FRAMES]
        if place not in self._numbers:
            self._numbers[place] = len(self.places)
            self.places.append(place)
        return self._numbers[place], _phase(found)


def _phase(frames: Sequence[tuple[str, Any, str]]) -> MemoryPhase:
    if any(_OPTIMIZER_FILE.search(file) or name == "zero_grad" for file, _, name in frames):
        return MemoryPhase.OPTIMIZER
    if any(_BACKWARD_NAME.fullmatch(name) for _, _, name in frames):
        return MemoryPhase.BACKWARD
    if any(_is_setup(file, name) for file, _, name in frames):
        return MemoryPhase.SETUP
    return MemoryPhase.FORWARD if frames else MemoryPhase.UNKNOWN


def _is_setup(file: str, name: str) -> bool:
    if name in _LOADING_NAMES or _SETUP_FILE.search(file):
        return True
    return name in _SETUP_NAMES and _MODULE_FILE.search(file) is not None


def own_frame(where: Sequence[str]) -> str:
    """Return who allocates, from a stack: the innermost function outside of PyTorch and installed packages.

    Without one it is the innermost operator or function, and the outermost one; empty of no stack.
    """
    own = next((each for each in where if _FUNCTION.search(each) and not _LIBRARY.search(each)), "")
    if own or len(where) < 2:
        return own or "".join(where)
    return f"{where[0]} in {where[-1]}"
