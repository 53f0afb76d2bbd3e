"""Named parts of a script: in the recorder's timeline, as NVTX ranges, and in traces of torch's profiler."""

import itertools
import threading
from contextlib import ExitStack, suppress
from functools import wraps
from typing import Any, Callable, Optional, TypeVar, cast

from trainguard_collector.recorder.harmless import module
from trainguard_collector.recorder.steps import newest_recorder

F = TypeVar("F", bound=Callable[..., Any])
LONGEST_NAME = 256
# Annotations beyond it are not recorded.
MOST_OPEN = 1_000


class annotate:  # noqa: N801 - used as a function
    """Name a part of the script: ``with annotate("augment"):``, or ``@annotate("augment")`` for a function."""

    def __init__(self, name: str) -> None:
        self.name = str(name)[:LONGEST_NAME]
        self._parts = ExitStack()

    def __enter__(self) -> "annotate":
        recorder, torch, parts = newest_recorder(), module("torch"), self._parts
        if recorder is not None:
            with suppress(Exception):
                parts.enter_context(recorder.phase(self.name))
        if torch is not None:
            with suppress(Exception):
                if torch.autograd._profiler_enabled():
                    parts.enter_context(torch.profiler.record_function(self.name))
            with suppress(Exception):
                if torch.cuda.is_initialized():
                    torch.cuda.nvtx.range_push(self.name)
                    parts.callback(torch.cuda.nvtx.range_pop)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(Exception):
            self._parts.close()

    def __call__(self, function: F) -> F:
        @wraps(function)
        def annotated(*arguments: Any, **named: Any) -> Any:
            with annotate(self.name):
                return function(*arguments, **named)

        return cast("F", annotated)


_numbers = itertools.count(1)
_open: "dict[int, annotate]" = {}
_lock = threading.Lock()


def annotation_begin(name: str) -> int:
    """Begin an annotation; returns what `annotation_end` takes. Annotations of a thread end in the opposite order."""
    number = next(_numbers)
    with _lock:
        has_room = len(_open) < MOST_OPEN
    if has_room:
        begun = annotate(name).__enter__()
        with _lock:
            _open[number] = begun
    return number


def annotation_end(annotation: Optional[int] = None) -> None:
    """End an annotation, by default the one that was begun last; one that is not open is ignored."""
    with _lock:
        if annotation is None and _open:
            annotation = max(_open)
        begun = _open.pop(annotation, None) if annotation is not None else None
    if begun is not None:
        begun.__exit__(None, None, None)
