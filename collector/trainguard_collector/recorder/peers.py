"""Times how long a training process waits for its peers: in collectives of torch, and for the last gradients of DDP.

A rank enters the last reduction of its gradients when its own backward pass is done. The autograd engine says when: a
callback that the first gradient of a pass asks for runs before those that wait for reductions, which ask later.
"""

import functools
import threading
from typing import Any, Callable, Optional

from trainguard_collector.recorder.harmless import harmless, module, replaced
from trainguard_collector.recorder.steps import Moment, StepRecorder
from trainguard_collector.recorder.timeline import PEER_WAIT

_FSDP = "torch.distributed.fsdp._fully_shard._fsdp_param_group"


class PeerWaits:
    def __init__(self, recorder: StepRecorder, torch: Any) -> None:
        self._recorder, self._torch, self.faults = recorder, torch, recorder.faults
        self._thread = threading.get_ident()
        self._is_waiting = self.in_backward = False
        self._own_end: Optional[Moment] = None
        self._stream: Optional[Any] = None
        distributed = torch.distributed
        self._distributed = distributed if distributed.is_available() else None
        self._undo: list[Callable[[], None]] = []
        if self._distributed is None:
            return
        waits = [(distributed.Work, "wait"), (distributed, "_broadcast_coalesced")]
        if torch.cuda.is_initialized():  # there the stream waits, and no call of the processor does
            waits.append((getattr(module(_FSDP), "FSDPParamGroup", None), "wait_for_unshard"))
        self._undo = [replaced(owner, name, self._around) for owner, name in waits if hasattr(owner, name)]

    @harmless(PEER_WAIT)
    def begin_backward(self, tensors: Any) -> "Optional[list[Any]]":
        """Ask for the end of the own part of a backward pass from ``tensors``; return hooks for `end_backward`."""
        self.in_backward, self._own_end = True, None
        if self._recorder.gpu is not None:
            self._stream = self._torch.cuda.current_stream()
        if not self._has_peers() or self._is_compiled():
            return None
        roots = [tensors] if isinstance(tensors, self._torch.Tensor) else list(tensors)
        asked: list[bool] = []
        queue = self._torch.autograd.Variable._execution_engine.queue_callback

        def began(_: Any) -> None:
            if not asked:
                asked.append(True)
                queue(self._end_own_part)

        return [each.register_hook(began) for each in roots if getattr(each, "requires_grad", False)]

    @harmless(PEER_WAIT)
    def end_backward(self, hooks: "Optional[list[Any]]") -> None:
        self.in_backward = False
        for each in hooks or ():
            each.remove()
        own_end, self._own_end = self._own_end, None
        if own_end is not None and self._recorder.is_on:
            self._recorder.add_phase(PEER_WAIT, own_end)

    def close(self) -> None:
        for undo in self._undo:
            undo()

    @harmless(PEER_WAIT)
    def _end_own_part(self) -> None:
        if self.in_backward:
            self._own_end = self._recorder.moment()

    def _has_peers(self) -> bool:
        found = self._distributed
        return found is not None and found.is_initialized() and found.get_world_size() > 1

    def _is_compiled(self) -> bool:
        """Whether the engine hands passes to a compiler, which would take our hook into its graph."""
        compiled = module("torch._dynamo.compiled_autograd")
        return bool(getattr(compiled, "compiled_autograd_enabled", False))

    def _around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def timed(*arguments: Any, **named: Any) -> Any:
            began = self._enter()
            if began is None:
                return original(*arguments, **named)
            try:
                return original(*arguments, **named)
            finally:
                self._leave(began)

        return timed

    @harmless(PEER_WAIT)
    def _enter(self) -> Optional[Moment]:
        """Return the beginning of a wait; None of one in another, and of other threads than those that train."""
        recorder = self._recorder
        if self._is_waiting or not recorder.is_on:
            return None
        if threading.get_ident() != self._thread and not self.in_backward:
            return None
        if recorder.gpu is not None and self._stream != self._torch.cuda.current_stream():
            return None  # a stream of its own, for which the training does not wait here
        began = recorder.moment()
        self._is_waiting = True
        return began

    @harmless(PEER_WAIT)
    def _leave(self, began: Moment) -> None:
        self._is_waiting = False
        if self._recorder.is_on:
            self._recorder.add_phase(PEER_WAIT, began)
