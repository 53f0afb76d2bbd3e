"""Times what a script calls by hooks and replaced functions: forward, backward, optimizer, and saved checkpoints."""

import functools
import time
from collections.abc import Iterable
from typing import Any, Callable, NamedTuple, Optional

from trainguard_collector.recorder.gpu_times import Mark
from trainguard_collector.recorder.harmless import optimizers
from trainguard_collector.recorder.steps import StepRecorder
from trainguard_collector.recorder.timeline import BACKWARD, FORWARD, OPTIMIZER, label_of

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


_clock = time.monotonic_ns


class _Began(NamedTuple):
    at_ns: int
    mark: Optional[Mark]


class Instrument:
    """The timing of one process; ``torch.autograd.backward`` is replaced until the recorder is closed."""

    def __init__(self, recorder: StepRecorder, torch: Any) -> None:
        self._recorder, self._autograd = recorder, torch.autograd
        self._depth, self._step = 0, -1
        self._open: dict[str, _Began] = {}
        self._models: list[Any] = []
        hooks = optimizers()
        self._hooks = [
            hooks.register_optimizer_step_pre_hook(lambda *_: self._begin(OPTIMIZER)),
            hooks.register_optimizer_step_post_hook(lambda *_: self._end(OPTIMIZER)),
        ]
        self._backward = torch.autograd.backward
        self._timed = _timed(self._backward, self)
        torch.autograd.backward = self._timed
        recorder.at_close.append(self._close)

    def add(self, model: Any) -> None:
        if any(each is model for each in self._models):
            return
        self._models.append(model)
        self._hooks.append(model.register_forward_pre_hook(self._enter_model))
        self._hooks.append(model.register_forward_hook(self._leave_model))

    def time_method(self, owner: Any, name: str) -> Callable[[], None]:
        """Time a method of a model as its forward pass, for trainers that call no other; return what undoes it."""

        def around(original: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(original)
            def timed(*arguments: Any, **named: Any) -> Any:
                self._enter_model()
                try:
                    return original(*arguments, **named)
                finally:
                    self._leave_model()

            return timed

        return replaced(owner, name, around)

    def begin_backward(self) -> None:
        """Begin the backward pass."""
        self._begin(BACKWARD)

    def end_backward(self) -> None:
        """End the backward pass."""
        self._end(BACKWARD)

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
                at_ns = _clock()
                self._open[name] = _Began(at_ns, self._recorder.mark_gpu(at_ns))
        except Exception as fault:
            self._recorder.faults.add(name, fault)

    def _end(self, name: str) -> None:
        try:
            began = self._open.pop(name, None)
            if began is not None and self._recorder.is_on:
                ended_ns = _clock()
                self._recorder.log.add((label_of(name), name, began.at_ns, ended_ns, "", 0))
                if began.mark is not None:
                    self._recorder.span_on_gpu(name, began.mark, self._recorder.mark_gpu(ended_ns))
        except Exception as fault:
            self._recorder.faults.add(name, fault)

    def _close(self) -> None:
        for hook in self._hooks:
            hook.remove()
        if self._autograd.backward is self._timed:  # else somebody has replaced it since; it calls through
            self._autograd.backward = self._backward


def _timed(backward: Callable[..., Any], instrument: Instrument) -> Callable[..., Any]:
    @functools.wraps(backward)
    def timed(*arguments: Any, **named: Any) -> Any:
        instrument.begin_backward()
        try:
            return backward(*arguments, **named)
        finally:
            instrument.end_backward()

    return timed
