"""Snapshots of PyTorch's allocator, as ``torch.cuda.memory._snapshot`` gives them, from a small allocator of its own.

The keys are those of pytorch's torch/cuda/memory.py and of _block_extra_legacy in torch/cuda/_memory_viz.py.
"""

import json
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

MIB = 1 << 20
ROUND = 512
SEGMENT = 20 * MIB

Frame = dict[str, Any]


def frame(filename: str, line: int, name: str) -> Frame:
    return {"filename": filename, "line": line, "name": name}


_TORCH = "/opt/venv/lib/python3.12/site-packages/torch"
SETUP = [
    frame(f"{_TORCH}/nn/modules/module.py", 1326, "convert"),
    frame(f"{_TORCH}/nn/modules/module.py", 930, "_apply"),
    frame("/app/train.py", 20, "main"),
]
FORWARD = [
    frame(f"{_TORCH}/nn/modules/linear.py", 125, "forward"),
    frame(f"{_TORCH}/nn/modules/module.py", 1750, "_call_impl"),
    frame("/app/model.py", 31, "forward"),
    frame("/app/train.py", 40, "main"),
]
LOGITS = [frame("/app/model.py", 77, "head"), frame("/app/train.py", 40, "main")]
OPTIMIZER = [
    frame(f"{_TORCH}/optim/adam.py", 140, "_init_group"),
    frame(f"{_TORCH}/optim/optimizer.py", 493, "wrapper"),
    frame("/app/train.py", 43, "main"),
]
LEAK = [frame("/app/metrics.py", 9, "remember"), frame("/app/train.py", 44, "main")]
ZERO_GRAD = [frame(f"{_TORCH}/optim/optimizer.py", 980, "zero_grad"), frame("/app/train.py", 38, "main")]
# The thread of backward has no Python stack.
BACKWARD: list[Frame] = []


@dataclass
class Block:
    address: int
    size: int
    requested: int = 0
    frames: list[Frame] | None = None

    @property
    def is_free(self) -> bool:
        return self.frames is None


@dataclass
class Allocator:
    """Takes the first free block that is large enough, splits it, and joins free neighbours.

    ``limit`` is the memory of the GPU; ``events`` are recorded from the start, the last ``most_events`` are kept.
    """

    limit: int = 80 * 1024 * MIB
    device: int = 0
    most_events: int | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    segments: dict[int, list[Block]] = field(default_factory=dict)
    time_us: int = 1_795_000_000_000_000
    records: bool = True
    next_address: int = 0x7F0000000000

    @property
    def reserved(self) -> int:
        return sum(block.size for blocks in self.segments.values() for block in blocks)

    @property
    def allocated(self) -> int:
        """Bytes that were asked for and not freed."""
        return sum(each.requested for blocks in self.segments.values() for each in blocks if not each.is_free)

    def alloc(self, requested: int, frames: list[Frame]) -> int:
        """Return the address of new memory; raises MemoryError."""
        size = -(-requested // ROUND) * ROUND
        found = self._fit(size)
        if found is None:
            segment = max(SEGMENT, -(-size // (2 * MIB)) * 2 * MIB)
            if self.reserved + segment > self.limit:
                free = self.limit - self.reserved
                self._event("oom", size=requested, device_free=free, frames=frames)
                raise MemoryError
            self.segments[self.next_address] = [Block(self.next_address, segment)]
            self._event("segment_alloc", addr=self.next_address, size=segment, frames=frames)
            self.next_address += segment + 4 * MIB
            found = self._fit(size)
            assert found is not None
        blocks, place = found
        block = blocks[place]
        if block.size > size:
            blocks.insert(place + 1, Block(block.address + size, block.size - size))
        blocks[place] = Block(block.address, size, requested, frames)
        self._event("alloc", addr=block.address, size=requested, frames=frames)
        return block.address

    def free(self, address: int, frames: Sequence[Frame] = ()) -> None:
        for blocks in self.segments.values():
            for place, block in enumerate(blocks):
                if block.address == address and not block.is_free:
                    for action in ("free_requested", "free_completed"):
                        self._event(action, addr=address, size=block.requested, frames=list(frames))
                    blocks[place] = Block(address, block.size)
                    self._join(blocks)
                    return
        raise KeyError(address)

    def empty_cache(self) -> None:
        """Give back segments that hold nothing."""
        for address, blocks in list(self.segments.items()):
            if len(blocks) == 1 and blocks[0].is_free:
                self._event("segment_free", addr=address, size=blocks[0].size, frames=[])
                del self.segments[address]

    def _fit(self, size: int) -> tuple[list[Block], int] | None:
        for blocks in self.segments.values():
            for place, block in enumerate(blocks):
                if block.is_free and block.size >= size:
                    return blocks, place
        return None

    @staticmethod
    def _join(blocks: list[Block]) -> None:
        joined: list[Block] = []
        for block in blocks:
            if joined and joined[-1].is_free and block.is_free:
                joined[-1] = Block(joined[-1].address, joined[-1].size + block.size)
            else:
                joined.append(block)
        blocks[:] = joined

    def _event(self, action: str, **said: Any) -> None:
        self.time_us += 10
        if self.records:
            self.events.append({"action": action, "stream": 0, "time_us": self.time_us, **said})

    def snapshot(self, version: str = "2.12") -> dict[str, Any]:
        """Return the snapshot as a version of PyTorch gives it: 1.13, 2.0 or 2.12."""
        events = self.events[-self.most_events :] if self.most_events else self.events
        if version != "2.12":
            events = [{key: value for key, value in each.items() if key != "time_us"} for each in events]
        found: dict[str, Any] = {
            "segments": [self._segment(address, blocks, version) for address, blocks in self.segments.items()],
            "device_traces": [*([] for _ in range(self.device)), events],
        }
        if version == "2.12":
            found["allocator_settings"] = {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False}
            found["external_annotations"] = []
        return found

    def _segment(self, address: int, blocks: list[Block], version: str) -> dict[str, Any]:
        held = sum(block.size for block in blocks if not block.is_free)
        return {
            "device": self.device,
            "address": address,
            "total_size": sum(block.size for block in blocks),
            "allocated_size": held,
            "active_size": held,
            "stream": 0,
            "segment_type": "large",
            "segment_pool_id": (0, 0),
            "blocks": [self._block(block, version) for block in blocks],
        }

    @staticmethod
    def _block(block: Block, version: str) -> dict[str, Any]:
        found: dict[str, Any] = {"size": block.size, "state": "inactive" if block.is_free else "active_allocated"}
        if version == "1.13":
            # Without addresses, and with what was asked for in a history.
            history = {"addr": block.address, "real_size": block.requested, "frames": block.frames}
            return found if block.is_free else {**found, "history": [history]}
        return {**found, "address": block.address, "requested_size": block.requested, "frames": block.frames or []}


@dataclass
class Training:
    """A loop of training on an allocator; sizes in MiB a layer, ``leak`` and ``logits`` a step."""

    allocator: Allocator = field(default_factory=Allocator)
    layers: int = 4
    parameters: int = 8
    activations: int = 16
    workspace: int = 4
    logits: int = 0
    leak: int = 0
    # Times the parameters that the optimizer keeps.
    state: int = 2

    gradients: list[int] = field(default_factory=list)
    ran: int = 0

    def setup(self) -> None:
        for _ in range(self.layers):
            self.allocator.alloc(self.parameters * MIB, SETUP)

    def run(self, steps: int) -> None:
        """Train on; raises MemoryError as the allocator does."""
        take, give, layers = self.allocator.alloc, self.allocator.free, self.layers
        for _ in range(steps):
            while self.gradients:
                give(self.gradients.pop(), ZERO_GRAD)
            held = []
            for _ in range(layers):
                passing = take(self.workspace * MIB, FORWARD)
                held.append(take(self.activations * MIB, FORWARD))
                give(passing, FORWARD[1:])
            if self.logits:
                held.append(take(self.logits * MIB, LOGITS))
            if self.leak:
                take(self.leak * MIB, LEAK)
            passing = take(self.activations * MIB, BACKWARD)
            while held:
                if len(held) <= layers:
                    self.gradients.append(take(self.parameters * MIB, BACKWARD))
                give(held.pop())
            give(passing)
            passing = take(self.parameters * MIB, OPTIMIZER)
            self.ran += 1
            if self.ran == 1:
                for _ in range(layers * self.state):
                    take(self.parameters * MIB, OPTIMIZER)
            give(passing, OPTIMIZER)


def pickled(snapshot: dict[str, Any], protocol: int = 4) -> bytes:
    """Return what ``_dump_snapshot`` writes."""
    return pickle.dumps(snapshot, protocol)


def as_json(snapshot: dict[str, Any]) -> bytes:
    return json.dumps(snapshot).encode()
