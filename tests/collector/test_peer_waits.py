"""What a process waits for its peers, on stubs of torch: on the processor and on a GPU, in and outside of backward."""

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from trainguard_collector.recorder.harmless import Faults
from trainguard_collector.recorder.peers import PeerWaits


class Work:
    """A collective that is waited for."""

    def wait(self, inner: "Callable[[], None] | None" = None) -> str:
        if inner is not None:
            inner()
        return "done"


class Tensor:
    """A root of a backward pass."""

    def __init__(self, *, requires_grad: bool = True) -> None:
        self.requires_grad = requires_grad
        self.hooks: list[Callable[[Any], Any]] = []

    def register_hook(self, hook: Callable[[Any], Any]) -> Any:
        self.hooks.append(hook)
        return SimpleNamespace(remove=lambda: self.hooks.remove(hook))


class Recorded:
    """A recorder: the phases added to it, and what a moment is."""

    def __init__(self) -> None:
        self.is_on, self.faults, self.gpu = True, Faults(), None
        self.events: list[tuple[str, int]] = []
        self.now = 0

    def moment(self) -> int:
        self.now += 1
        return self.now

    def add_phase(self, name: str, began: int) -> None:
        self.events.append((name, began))


@pytest.fixture
def torch() -> Any:
    class OwnWork(Work):
        wait = Work.wait

    callbacks: list[Callable[[], None]] = []
    distributed = SimpleNamespace(
        Work=OwnWork,
        _broadcast_coalesced=lambda: "sent",
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_world_size=lambda: 2,
    )
    engine = SimpleNamespace(queue_callback=callbacks.append)
    return SimpleNamespace(
        Tensor=Tensor,
        distributed=distributed,
        cuda=SimpleNamespace(is_initialized=lambda: False, current_stream=lambda: "training"),
        autograd=SimpleNamespace(Variable=SimpleNamespace(_execution_engine=engine)),
        callbacks=callbacks,
    )


@pytest.fixture
def recorder() -> Recorded:
    return Recorded()


@pytest.fixture
def peers(recorder: Any, torch: Any) -> Iterator[PeerWaits]:
    found = PeerWaits(recorder, torch)
    yield found
    found.close()
    assert recorder.faults.newest == {}


def backward(peers: PeerWaits, torch: Any, *roots: Tensor) -> None:
    """Run a pass as torch does: hooks of roots, then the callbacks in the order in which they were asked for."""
    hooks = peers.begin_backward(list(roots) if len(roots) > 1 else roots[0])
    for root in roots:
        for hook in root.hooks:
            assert hook("gradient") is None, "a hook that returns something replaces the gradient"
    for callback in torch.callbacks:
        callback()
    torch.callbacks.clear()
    peers.end_backward(hooks)
    assert not any(root.hooks for root in roots)


def test_waits_of_work_and_of_sent_buffers_are_phases(peers: PeerWaits, recorder: Recorded, torch: Any) -> None:
    assert torch.distributed.Work().wait() == "done"
    assert torch.distributed._broadcast_coalesced() == "sent"
    assert recorder.events == [("peer_wait", 1), ("peer_wait", 2)]
    peers.close()
    torch.distributed.Work().wait()
    assert len(recorder.events) == 2


def test_wait_within_a_wait_and_in_another_thread_is_none(peers: PeerWaits, recorder: Recorded, torch: Any) -> None:
    work = torch.distributed.Work()
    work.wait(work.wait)
    other = threading.Thread(target=work.wait)
    other.start()
    other.join()
    assert recorder.events == [("peer_wait", 1)]


def test_wait_that_raises_is_recorded_and_passes_it_on(peers: PeerWaits, recorder: Recorded, torch: Any) -> None:
    def broken() -> None:
        raise RuntimeError("connection closed")

    with pytest.raises(RuntimeError, match="connection closed"):
        torch.distributed.Work().wait(broken)
    assert torch.distributed.Work().wait() == "done"
    assert recorder.events == [("peer_wait", 1), ("peer_wait", 2)]


def test_own_part_of_a_pass_ends_before_later_callbacks(peers: PeerWaits, recorder: Recorded, torch: Any) -> None:
    backward(peers, torch, Tensor())
    backward(peers, torch, Tensor(requires_grad=False), Tensor(), Tensor())
    assert recorder.events == [("peer_wait", 1), ("peer_wait", 2)]


@pytest.mark.parametrize("alone", ["is_initialized", "get_world_size", "is_available"])
def test_process_without_peers_asks_for_nothing(alone: str, recorder: Any, torch: Any) -> None:
    setattr(torch.distributed, alone, lambda: False if alone.startswith("is") else 1)
    peers, root = PeerWaits(recorder, torch), Tensor()
    hooks = peers.begin_backward(root)
    peers.end_backward(hooks)
    assert (hooks, root.hooks, recorder.events, recorder.faults.newest) == (None, [], [], {})
    peers.close()


def test_compiled_pass_gets_no_hook(peers: PeerWaits, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = SimpleNamespace(compiled_autograd_enabled=True)
    monkeypatch.setitem(__import__("sys").modules, "torch._dynamo.compiled_autograd", compiled)
    assert not peers.begin_backward(Tensor())


def test_on_a_gpu_only_waits_of_the_training_stream_count(
    recorder: Recorded, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FSDPParamGroup:
        def wait_for_unshard(self) -> str:
            torch.distributed.Work().wait()
            return "unsharded"

    name = "torch.distributed.fsdp._fully_shard._fsdp_param_group"
    monkeypatch.setitem(__import__("sys").modules, name, SimpleNamespace(FSDPParamGroup=FSDPParamGroup))
    torch.cuda.is_initialized = lambda: True
    recorder.gpu = object()  # type: ignore[assignment]
    peers = PeerWaits(recorder, torch)  # type: ignore[arg-type]
    backward(peers, torch, Tensor())
    assert FSDPParamGroup().wait_for_unshard() == "unsharded"
    torch.cuda.current_stream = lambda: "gathers"
    torch.distributed.Work().wait()
    assert recorder.events == [("peer_wait", 1), ("peer_wait", 2)]
    peers.close()
