"""Times what a script calls by hooks and replaced functions: forward, backward, optimizer, and saved checkpoints."""

import functools
from collections.abc import Iterable
from typing import Any, Callable

from trainguard_collector.recorder.harmless import optimizers, replaced
from trainguard_collector.recorder.peers import PeerWaits
from trainguard_collector.recorder.steps import Moment, StepRecorder
from trainguard_collector.recorder.timeline import BACKWARD, FORWARD, OPTIMIZER

CHECKPOINT = "checkpoint"


def time_checkpoints(recorder: StepRecorder, owner: Any, names: Iterable[str]) -> "list[Callable[[], None]]":
    """Record calls of methods as phases; return what undoes each. One that calls another is one phase."""

    def around(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def timed(*arguments: Any, **named: Any) -> Any:
            if recorder.is_in(CHECKPOINT):
                return original(*arguments, **named)
            with recorder.phase(CHECKPOINT):
                return original(*arguments, **named)

        return timed

    return [replaced(owner, name, around) for name in names if hasattr(owner, name)]


class Instrument:
    """The timing of one process; functions of torch are replaced until the recorder is closed."""

    def __init__(self, recorder: StepRecorder, torch: Any) -> None:
        self._recorder = recorder
        self._depth, self._step = 0, -1
        self._open: dict[str, Moment] = {}
        self._models: list[Any] = []
        hooks = optimizers()
        self._hooks = [
            hooks.register_optimizer_step_pre_hook(lambda *_: self._begin(OPTIMIZER)),
            hooks.register_optimizer_step_post_hook(lambda *_: self._end(OPTIMIZER)),
        ]
        self._peers = PeerWaits(recorder, torch)
        self._put_back = replaced(torch.autograd, "backward", self._around_backward)
        recorder.at_close.append(self._close)

    def add(self, model: Any) -> None:
        if any(each is model for each in self._models):
            return
        self._models.append(model)
        self._hooks.append(model.register_forward_pre_hook(self._enter_model))
        self._hooks.append(model.register_forward_hook(self._leave_model))

    def time_method(self, owner: Any, name: str) -> Callable[[], None]:
        """Time a method of a model as its forward pass, for trainers that call no other; return what undoes it."""
        return replaced(owner, name, _between(self._enter_model, self._leave_model))

    def _around_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def timed(tensors: Any, *arguments: Any, **named: Any) -> Any:
            if self._peers.in_backward or not self._recorder.is_on:  # a pass within a pass is its part
                return original(tensors, *arguments, **named)
            self._begin(BACKWARD)
            hooks = self._peers.begin_backward(tensors)
            try:
                return original(tensors, *arguments, **named)
            finally:
                self._peers.end_backward(hooks)
                self._end(BACKWARD)

        return timed

    def _enter_model(self, *_: Any) -> None:
        step = self._recorder.numbers.step
        if step != self._step:  # a pass of an earlier step that raised was never left
            self._step, self._depth = step, 0
        self._depth += 1
        if self._depth == 1:
            self._begin(FORWARD)

    def _leave_model(self, *_: Any) -> None:
        self._depth = max(self._depth - 1, 0)
        if self._depth == 0:
            self._end(FORWARD)

    def _begin(self, name: str) -> None:
        try:
            if self._recorder.is_on:
                self._open[name] = self._recorder.moment()
        except Exception as fault:
            self._recorder.faults.add(name, fault)

    def _end(self, name: str) -> None:
        try:
            began = self._open.pop(name, None)
            if began is not None and self._recorder.is_on:
                self._recorder.add_phase(name, began)
        except Exception as fault:
            self._recorder.faults.add(name, fault)

    def _close(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._put_back()
        self._peers.close()


def _between(
    before: Callable[[], None], after: Callable[[], None]
) -> "Callable[[Callable[..., Any]], Callable[..., Any]]":
    """Return what puts calls before and after a function, whether it raises or not."""

    def around(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def timed(*arguments: Any, **named: Any) -> Any:
            before()
            try:
                return original(*arguments, **named)
            finally:
                after()

        return timed

    return around
