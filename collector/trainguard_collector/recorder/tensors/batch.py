"""The tensors of one step on their way to the sampler: copied without waiting, read when they are there."""

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Optional

from trainguard_collector.recorder.pinned import HostBuffers
from trainguard_collector.recorder.tensors.folding import fold
from trainguard_collector.recorder.tensors.parts import Group, Layout, Scratch
from trainguard_collector.recorder.tensors.reductions import reduce_rows
from trainguard_collector.tensor_files import DTYPES, Entry, Reductions, entries_line, entry_text, step_line

FLOAT32, FLOAT64 = DTYPES["float32"], DTYPES["float64"]
# Full tensors of a step beyond it are left out and counted.
MOST_BYTES = 256 * 1024 * 1024


class _Sent:
    """Numbers of a device on their way: ``host`` is there when the step has been sent."""

    __slots__ = ("host", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.host: Any = None


class Reduced:
    """Reductions of named tensors, of one step; ``values`` are float32[names, kinds] on the host, once it has them.

    The order of ``values`` is that of the layouts.
    """

    def __init__(self, names: "tuple[str, ...]", kinds: "tuple[str, ...]", groups: "list[tuple[Group, _Sent]]") -> None:
        self.names, self.kinds, self.groups = names, kinds, groups
        self.values: Any = None

    def text(self) -> str:
        return _text(self.names, self.kinds, tuple(group.layout for group, _ in self.groups))


# Saved steps have the same few lists of names.
@lru_cache(maxsize=16)
def _text(names: "tuple[str, ...]", kinds: "tuple[str, ...]", layouts: "tuple[Layout, ...]") -> str:
    ordered = [names[place] for layout in layouts for place in layout.places]
    return entry_text(Reductions(ordered, list(kinds)))


class StepBatch:
    """What is saved of a step: numbers, which a device sends at once, and full tensors."""

    def __init__(
        self,
        torch: Any,
        *,
        step: int,
        mode: str,
        mode_step: int,
        at: float,
        buffers: Optional[HostBuffers] = None,
        memory: Optional[Scratch] = None,
    ) -> None:
        self._torch, self._buffers, self._memory = torch, buffers or HostBuffers(), memory or Scratch()
        self.about = {"step": step, "mode": mode, "mode_step": mode_step, "at": at}
        self._leaving: dict[Any, tuple[list[_Sent], list[Any]]] = {}
        self._numbers: list[tuple[Entry, _Sent]] = []
        self._reduced: list[Reduced] = []
        self._saved: list[Reduced] = []
        self._totals: list[tuple[str, Sequence[Reduced]]] = []
        self._full: list[tuple[str, Any]] = []
        self._plain: list[tuple[str, Any]] = []
        self._size = 0
        self._taken: list[Any] = []
        self._devices: set[Any] = set()
        self._ready: list[Any] = []
        self.left_out: list[str] = []

    def add_number(self, name: str, value: Any) -> None:
        """Add one number: a Python number, or a tensor with one entry."""
        if hasattr(value, "detach"):
            sent = self._send([value.detach().reshape(1).float()])
            self._numbers.append((Entry(name, FLOAT32, [1], 4), sent))
        else:  # an array of JAX is computed later: it is read when it is ready
            self._plain.append((name, value if hasattr(value, "is_ready") else float(value)))

    def reduce(
        self, names: "tuple[str, ...]", tensors: Sequence[Any], kinds: "tuple[str, ...]", *, is_saved: bool = True
    ) -> Reduced:
        """Have tensors reduced; their reductions are saved with the step, or only part of a total."""
        groups = reduce_rows(self._torch, tensors, kinds, self._memory)
        sent = [(group._replace(parts=[]), self._send(group.parts)) for group in groups]
        reduced = Reduced(names, kinds, sent)
        self._reduced.append(reduced)
        if is_saved:
            self._saved.append(reduced)
        return reduced

    def add_total(self, name: str, parts: Sequence[Reduced]) -> None:
        """Add the norm of all tensors of ``parts``, which have norms."""
        self._totals.append((name, parts))

    def _send(self, parts: "list[Any]") -> _Sent:
        sent = _Sent(sum(part.numel() for part in parts))
        leaving = self._leaving.setdefault((parts[0].device, parts[0].dtype), ([], []))
        leaving[0].append(sent)
        leaving[1].extend(parts)
        return sent

    def add_full(self, name: str, tensor: Any) -> None:
        """Add a copy of all entries of a tensor, unless the step is full."""
        tensor = tensor.detach()
        if str(tensor.dtype).rpartition(".")[2] not in DTYPES:
            tensor = tensor.float()
        size = tensor.numel() * tensor.element_size()
        if not size:
            return
        if self._size + size > MOST_BYTES:
            self.left_out.append(name)
            return
        self._size += size
        is_here = tensor.is_cpu
        host = tensor.clone(memory_format=self._torch.contiguous_format) if is_here else self._to_host(tensor)
        self._full.append((name, host))

    @property
    def is_empty(self) -> bool:
        return not (self._leaving or self._full or self._plain)

    def send_to_host(self) -> None:
        """Begin to copy what devices hold; called where the step ends."""
        for sent, parts in self._leaving.values():
            host = self._to_host(self._torch.cat(parts))
            for each, numbers in zip(sent, host.split([each.size for each in sent])):
                each.host = numbers
        self._leaving.clear()
        for device in self._devices:
            with self._torch.cuda.device(device):
                event = self._torch.cuda.Event()
                event.record()
            self._ready.append(event)

    def _to_host(self, tensor: Any) -> Any:
        """Return the host's tensor; that of a GPU is filled later, in a buffer that `release` gives back."""
        if not tensor.is_cuda:
            return tensor.to("cpu")
        size = tensor.numel() * tensor.element_size()
        buffer = self._buffers.take(self._torch, size)
        self._taken.append(buffer)
        self._devices.add(tensor.device)
        return buffer[:size].view(tensor.dtype).view(tensor.shape).copy_(tensor, non_blocking=True)

    def is_here(self) -> bool:
        """Whether the copies have ended; waits for nothing."""
        if not all(value.is_ready() for _, value in self._plain if hasattr(value, "is_ready")):
            return False
        return all(event.query() for event in self._ready)

    def release(self) -> None:
        """Give back the host's buffers, once the copies have ended and `parts` are taken."""
        while self._taken:
            self._buffers.give_back(self._taken.pop())

    def parts(self, worker: str) -> "tuple[bytes, ...]":
        """Return what is handed over to the sampler."""
        entries: list[str] = []
        contents: list[bytes] = []
        for entry, sent in self._numbers:
            entries.append(entry_text(entry))
            contents.append(_bytes_of(sent.host))
        self._fold()
        for reduced in self._saved:
            entries.append(reduced.text())
            contents.append(_bytes_of(reduced.values))
        for name, summed in self._totals:
            norms = self._torch.cat([reduced.values[:, reduced.kinds.index("l2")] for reduced in summed])
            entries.append(entry_text(Entry(name, FLOAT32, [1], 4)))
            contents.append(_bytes_of(self._torch.linalg.vector_norm(norms)))
        for name, number in self._plain:
            entries.append(entry_text(Entry(name, FLOAT64, [1], 8)))
            contents.append(bytes(ctypes.c_double(float(number))))
        for name, host in self._full:
            dtype = DTYPES[str(host.dtype).rpartition(".")[2]]
            contents.append(_bytes_of(host))
            entries.append(entry_text(Entry(name, dtype, list(host.shape) or [1], len(contents[-1]))))
        line = step_line(worker=worker, **self.about)  # type: ignore[arg-type]
        return (line, entries_line(entries), *contents)

    def _fold(self) -> None:
        by_kinds: dict[tuple[str, ...], list[Reduced]] = {}
        for reduced in self._reduced:
            by_kinds.setdefault(reduced.kinds, []).append(reduced)
        for kinds, together in by_kinds.items():
            groups = [(group, sent.host) for reduced in together for group, sent in reduced.groups]
            values = fold(self._torch, groups, kinds).split([len(reduced.names) for reduced in together])
            for reduced, part in zip(together, values):
                reduced.values = part


def _bytes_of(tensor: Any) -> bytes:
    """Return the bytes of a contiguous tensor, without numpy."""
    size = tensor.numel() * tensor.element_size()
    return ctypes.string_at(tensor.data_ptr(), size)
