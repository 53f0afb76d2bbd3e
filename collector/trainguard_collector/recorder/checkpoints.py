"""Records the calls with which a trainer saves a checkpoint as phases."""

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from trainguard_collector.recorder.recorder import Recorder

CHECKPOINT = "checkpoint"


def time_checkpoints(recorder: "Recorder", owner: Any, names: Iterable[str]) -> "list[Callable[[], None]]":
    """Record calls of those methods of an object or a class as phases; return what undoes each.

    One that calls another, as ``save`` may call ``save_weights``, is one phase.
    """

    def around(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def timed(*arguments: Any, **named: Any) -> Any:
            if recorder.is_in(CHECKPOINT):
                return original(*arguments, **named)
            with recorder.phase(CHECKPOINT):
                return original(*arguments, **named)

        return timed

    return [replaced(owner, name, around) for name in names if hasattr(owner, name)]


def replaced(owner: Any, name: str, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[], None]:
    """Put ``around(method)`` in place of a method of an object or a class; return what undoes it."""
    original, had_own = getattr(owner, name), name in vars(owner)
    own = around(original)
    setattr(owner, name, own)

    def undo() -> None:
        if vars(owner).get(name) is not own:
            return  # somebody has replaced it since, and calls through
        if had_own:
            setattr(owner, name, original)
        else:
            delattr(owner, name)

    return undo
