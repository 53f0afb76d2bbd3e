"""What keeps the recorder from harming the training: no exception of its own leaves it."""

import functools
import sys
from contextlib import suppress
from typing import Any, Callable, Optional, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


class Faults:
    """What went wrong in the recorder: the newest of each kind, and how often. The first of a kind is printed."""

    def __init__(self) -> None:
        self.newest: dict[str, str] = {}
        self.counts: dict[str, int] = {}

    def add(self, kind: str, fault: BaseException) -> None:
        """Count a fault; never raises."""
        with suppress(Exception):
            text = f"{type(fault).__name__}: {fault}"[:300]
            self.newest[kind] = text
            self.counts[kind] = self.counts.get(kind, 0) + 1
            if self.counts[kind] == 1:
                say(f"{kind}: {text}")


def say(text: str) -> None:
    """Write one line to standard error; never raises."""
    with suppress(Exception):
        sys.stderr.write(f"trainguard-collector: {text}\n")


def harmless(kind: str) -> Callable[[F], F]:
    """Return a decorator for methods of objects with ``faults``: what they raise is counted, and None returned."""

    def decorate(method: F) -> F:
        @functools.wraps(method)
        def guarded(self: Any, *arguments: Any, **named: Any) -> Any:
            try:
                return method(self, *arguments, **named)
            except Exception as fault:
                self.faults.add(kind, fault)
                return None

        return cast("F", guarded)

    return decorate


def module(name: str) -> Optional[Any]:
    return sys.modules.get(name)


def imported_torch() -> Any:
    """Return torch, which the script has imported; raises ValueError when it has not, or below version 2."""
    torch = module("torch")
    version = str(getattr(torch, "__version__", ""))
    major = version.split(".", maxsplit=1)[0]
    if not major.isdecimal() or int(major) < 2:
        raise ValueError(f"torch is {version or 'not imported'}, expected version 2 or newer")
    return torch


def optimizers() -> Any:
    """Return the module of torch that has the hooks of all optimizers; torch.optim hides it."""
    from importlib import import_module

    return import_module("torch.optim.optimizer")


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
