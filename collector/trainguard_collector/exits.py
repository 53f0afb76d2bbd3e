"""How a script ends that calls ``sys.exit``: nothing else tells the code while the process is still there.

``sys.exit`` is replaced by a function that raises an exception of the same kind. Where the interpreter destroys it with
no frame of Python below, it has ended the process; where a frame goes on, somebody has caught it.
"""

import functools
import sys
from typing import Any, NoReturn, Optional


class _Noted:
    """The newest call that was not caught: which exception it raised, and its code."""

    def __init__(self) -> None:
        self.is_watching = False
        self.raised: Optional[int] = None
        self.code = 0


_noted = _Noted()


class Exit(SystemExit):
    """What ``sys.exit`` raises; no frame of this module may hold it, else nobody could tell when it was caught."""

    def __init__(self, status: Any) -> None:
        super().__init__(status)
        _noted.raised, _noted.code = id(self), code_of(status)

    def __del__(self) -> None:
        try:
            sys._getframe(1)
        except ValueError:
            return
        if _noted.raised == id(self):
            _noted.raised, _noted.code = None, 0


def watch_exit() -> None:
    """Take note of the codes that ``sys.exit`` is given from here on."""
    if _noted.is_watching:
        return
    _noted.is_watching = True

    @functools.wraps(sys.exit)
    def exit_noted(status: Any = None, /) -> NoReturn:
        raise Exit(status)

    sys.exit = exit_noted


def noted_code() -> int:
    """Return the code with which ``sys.exit`` ends this process, 0 where it was not called or was caught."""
    return _noted.code


def code_of(status: Any) -> int:
    """Return the exit code that a process has for what ``sys.exit`` was given: 0 for None, 1 for a text."""
    if status is None:
        return 0
    return int(status) & 0xFF if isinstance(status, int) else 1
