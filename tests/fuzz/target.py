"""What is fuzzed: a reader of bytes, with inputs that it takes."""

import json
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from trainguard.errors import TrainGuardError


@dataclass(frozen=True, slots=True)
class Target:
    """A parser or a function: ``seeds`` gives well-formed inputs, ``read`` takes any while ``around`` is entered."""

    name: str
    seeds: Callable[[], Iterable[bytes]]
    read: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...] = (TrainGuardError,)
    around: Callable[[], AbstractContextManager[object]] = nullcontext


def of_document(read: Callable[[Any], object]) -> Callable[[bytes], object]:
    """Return what reads a document that comes as parsed JSON."""

    def take(body: bytes) -> object:
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            return None
        return read(document)

    return take


def documents(*values: Any) -> Callable[[], list[bytes]]:
    """Return what gives documents as JSON."""
    return lambda: [json.dumps(value).encode() for value in values]
