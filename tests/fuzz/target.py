"""What is fuzzed: a reader of bytes, with inputs that it takes."""

import json
import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import msgspec

from trainguard.core.errors import TrainGuardError


@dataclass(frozen=True, slots=True)
class Target:
    """A parser or a function: ``seeds`` gives well-formed inputs, ``read`` takes any while ``around`` is entered."""

    name: str
    seeds: Callable[[], Iterable[bytes]]
    read: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...] = (TrainGuardError,)
    around: Callable[[], AbstractContextManager[object]] = nullcontext


def of_document(read: Callable[[Any], object]) -> Callable[[bytes], object]:
    """Return what reads a document that comes as parsed JSON, as Lambda parses events: numbers are finite."""

    def take(body: bytes) -> object:
        try:
            document = json.loads(body, parse_constant=_finite, parse_float=_finite)
        except (ValueError, RecursionError):
            return None
        return read(document)

    return take


def of_answer(read: Callable[[Any], object]) -> Callable[[bytes], object]:
    """Return what reads a service's answer, which is parsed as HttpJsonApi does."""

    def take(body: bytes) -> object:
        try:
            answer = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return read(answer)

    return take


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(text)
    return number


def documents(*values: Any) -> Callable[[], list[bytes]]:
    """Return what gives documents as JSON."""
    return lambda: [json.dumps(value).encode() for value in values]
