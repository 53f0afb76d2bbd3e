"""Memory of the host that a GPU copies into without the processor waiting; it is kept, as making it is slow."""

from typing import Any

SMALLEST = 64 * 1024


class HostBuffers:
    """Pinned buffers of one process. A buffer is its taker's alone until it is given back, after its copy has ended."""

    def __init__(self) -> None:
        self._free: list[Any] = []

    def take(self, torch: Any, size: int) -> Any:
        """Return uint8[at least ``size``], the smallest that is free, else a new one of a power of two."""
        fitting = [each for each in self._free if each.numel() >= size]
        if fitting:
            found = min(fitting, key=lambda each: each.numel())
            self._free = [each for each in self._free if each is not found]
            return found
        rounded = max(SMALLEST, 1 << (size - 1).bit_length())
        return torch.empty(rounded, dtype=torch.uint8, pin_memory=True)

    def give_back(self, buffer: Any) -> None:
        self._free.append(buffer)
