"""A rule under watch: its exceptions are kept with their tracebacks, of which the engine keeps a sentence."""

import copy
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from trainguard.rules.extension import AnyRule

_METHODS = ("clear_after_s", "window_points", "observe", "judge")


@dataclass
class Watch:
    """Hands out copies of a rule, so that it keeps its state alone, and keeps one exception of each type and text."""

    rule: AnyRule
    raised: list[BaseException] = field(default_factory=list)

    def copy(self) -> AnyRule:
        """Return a fresh copy of the rule, under watch."""
        kind = type(self.rule)
        found = {name: inspect.getattr_static(kind, name, None) for name in _METHODS}
        methods = {name: self._noting(each) for name, each in found.items() if isinstance(each, FunctionType)}
        # A rule's module says whether it is a deployment's own.
        watched = type(kind.__name__, (kind,), {"__slots__": (), "__module__": kind.__module__, **methods})
        copied = copy.deepcopy(self.rule)
        object.__setattr__(copied, "__class__", watched)
        return copied

    def _noting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return method(*args, **kwargs)
            except (Exception, SystemExit) as raised:
                if not any(type(raised) is type(each) and str(raised) == str(each) for each in self.raised):
                    self.raised.append(raised)
                raise

        return call
