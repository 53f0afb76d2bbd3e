"""The tensors of one step on their way to the sampler: copied without waiting, read when they are there."""

import ctypes
from collections.abc import Sequence
from typing import Any, Optional, Union

from trainguard_collector.tensor_files import DTYPES, Entry, Reductions, entries_line, step_line

FLOAT32, FLOAT64 = DTYPES["float32"], DTYPES["float64"]
MOST_BYTES = 256 * 1024 * 1024
"""Full tensors of a step beyond it are left out and counted."""


class StepBatch:
    """What is saved of a step: numbers, which are stacked on the device, and full tensors."""

    def __init__(self, torch: Any, *, step: int, mode: str, mode_step: int, at: float) -> None:
        self._torch = torch
        self.about = {"step": step, "mode": mode, "mode_step": mode_step, "at": at}
        self._named: dict[Any, list[Union[Entry, Reductions]]] = {}
        self._values: dict[Any, list[Any]] = {}
        self._stacked: list[tuple[list[Union[Entry, Reductions]], Any]] = []
        self._full: list[tuple[str, Any]] = []
        self._plain: list[tuple[str, Any]] = []
        self._size = 0
        self._on_gpu = False
        self._ready: Optional[Any] = None
        self.left_out: list[str] = []

    def add_number(self, name: str, value: Any) -> None:
        """Add one number: a Python number, or a tensor with one entry."""
        if hasattr(value, "detach"):
            self._add(Entry(name, FLOAT32, [1], 4), value.detach().reshape(1).float())
        else:  # an array of JAX is computed later: it is read when it is ready
            self._plain.append((name, value if hasattr(value, "is_ready") else float(value)))

    def add_reductions(self, names: "list[str]", kinds: Sequence[str], values: Any) -> None:
        """Add reductions of tensors: float32[names, kinds]."""
        self._add(Reductions(names, list(kinds)), values.reshape(-1))

    def _add(self, named: Union[Entry, Reductions], values: Any) -> None:
        self._named.setdefault(values.device, []).append(named)
        self._values.setdefault(values.device, []).append(values)

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
        self._on_gpu = self._on_gpu or tensor.is_cuda
        self._full.append((name, _to_host(self._torch, tensor, copy=True)))

    @property
    def is_empty(self) -> bool:
        return not (self._values or self._stacked or self._full or self._plain)

    def send_to_host(self) -> None:
        """Begin to copy what the device holds; called where the step ends."""
        for device, values in self._values.items():
            stacked = self._torch.cat(values)
            self._on_gpu = self._on_gpu or stacked.is_cuda
            self._stacked.append((self._named[device], _to_host(self._torch, stacked, copy=False)))
        self._named.clear()
        self._values.clear()
        if self._on_gpu:
            self._ready = self._torch.cuda.Event()
            self._ready.record()

    def is_here(self) -> bool:
        """Whether the copies have ended; waits for nothing."""
        if not all(value.is_ready() for _, value in self._plain if hasattr(value, "is_ready")):
            return False
        return self._ready is None or bool(self._ready.query())

    def parts(self, worker: str) -> "tuple[bytes, ...]":
        """Return what is handed over to the sampler."""
        entries: list[Union[Entry, Reductions]] = []
        contents: list[bytes] = []
        for named, host in self._stacked:
            entries += named
            contents.append(_bytes_of(host))
        for name, number in self._plain:
            entries.append(Entry(name, FLOAT64, [1], 8))
            contents.append(bytes(ctypes.c_double(float(number))))
        for name, host in self._full:
            dtype = DTYPES[str(host.dtype).rpartition(".")[2]]
            contents.append(_bytes_of(host))
            entries.append(Entry(name, dtype, list(host.shape) or [1], len(contents[-1])))
        line = step_line(worker=worker, **self.about)  # type: ignore[arg-type]
        return (line, entries_line(entries), *contents)


def _to_host(torch: Any, tensor: Any, *, copy: bool) -> Any:
    """Return the host's tensor; that of a GPU is filled later."""
    if tensor.is_cuda:
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        return host.copy_(tensor, non_blocking=True)
    if tensor.device.type != "cpu":
        return tensor.to("cpu")
    return tensor.clone(memory_format=torch.contiguous_format) if copy else tensor.contiguous()


def _bytes_of(tensor: Any) -> bytes:
    """Return the bytes of a contiguous tensor, without numpy."""
    size = tensor.numel() * tensor.element_size()
    return ctypes.string_at(tensor.data_ptr(), size)
