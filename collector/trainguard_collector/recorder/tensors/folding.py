"""Joins what rows of tensors gave to the tensors' reductions, on the host and in float64.

``std`` and ``variance`` are the population's. Deviations of rows are joined by the formula of Chan, Golub and LeVeque
(1979), so that a mean far from zero costs no digits.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from trainguard_collector.recorder.tensors.reductions import Group, Layout, source


def fold(torch: Any, groups: "Sequence[tuple[Group, Any]]", kinds: Sequence[str]) -> Any:
    """Return float32[tensors, kinds] from groups and their parts on the host, in the order of the groups' places."""
    folded = _Fold(torch, groups)
    return torch.stack([folded.reduction(kind).float() for kind in kinds], dim=1)


class _Fold:
    """The reductions of all tensors: float64[tensors]. A tensor has two segments, its rows and its tail."""

    def __init__(self, torch: Any, groups: "Sequence[tuple[Group, Any]]") -> None:
        self._torch = torch
        columns, tails = [], []
        for group, host in groups:
            in_rows = sum(group.layout.rows)
            whole = len(group.needs) * in_rows
            columns.append(host[:whole].view(len(group.needs), in_rows))
            tails.append(host[whole:])
        self._lengths, self._sizes, self._widths = _segments(torch, tuple(group.layout for group, _ in groups))
        self._columns = dict(zip(groups[0][0].needs, torch.cat(columns, dim=1).double()))
        self._tail = {"": torch.cat(tails).double()}
        self._parts: dict[str, Any] = {}

    def reduction(self, kind: str) -> Any:
        prefix, name = source(kind)
        if name == "sum":
            return self._part(f"{prefix}mean") * self._sizes
        if name == "std":
            return self._part(f"{prefix}deviation") / self._sizes.sqrt()
        if name == "variance":
            return self._part(f"{prefix}deviation") ** 2 / self._sizes
        return self._part(f"{prefix}{name}")

    def _part(self, name: str) -> Any:
        if name not in self._parts:
            self._parts[name] = self._joined(name)
        return self._parts[name]

    def _joined(self, part: str) -> Any:
        torch, name = self._torch, part.rpartition("_")[2]
        prefix = part[: len(part) - len(name)]
        if prefix not in self._tail:
            self._tail[prefix] = self._tail[""].abs()
        rows, tail = self._columns.get(part), self._tail[prefix]
        if rows is None:
            return self._norm()
        if name == "deviation":
            mean = self._part(f"{prefix}mean").repeat(2).repeat_interleave(self._lengths)
            in_rows = rows.shape[0]
            apart = (self._columns[f"{prefix}mean"] - mean[:in_rows]) ** 2 * self._widths
            return self._joined_by("sum", rows**2 + apart, (tail - mean[in_rows:]) ** 2, torch.add).sqrt()
        if name == "mean":
            return self._joined_by("sum", rows * self._widths, tail, torch.add) / self._sizes
        if name == "l2":
            return self._joined_by("sum", rows**2, tail**2, torch.add).sqrt()
        return self._joined_by(name, rows, tail, {"min": torch.minimum, "max": torch.maximum, "prod": torch.mul}[name])

    def _norm(self) -> Any:
        """Return norms from means and deviations, which are no numbers where entries are infinite."""
        norm = (self._part("deviation") ** 2 + self._part("mean") ** 2 * self._sizes).sqrt()
        is_infinite = self._part("min").isinf() | self._part("max").isinf()
        return norm.masked_fill(is_infinite, float("inf"))

    def _joined_by(self, how: str, rows: Any, tail: Any, join: Any) -> Any:
        segments = self._torch.segment_reduce(self._torch.cat((rows, tail)), how, lengths=self._lengths, unsafe=True)
        return join(*segments.chunk(2))


# Few: a list of large tensors has a number for each row, and lists of other shapes may come at every saved step.
@lru_cache(maxsize=8)
def _segments(torch: Any, layouts: "tuple[Layout, ...]") -> "tuple[Any, Any, Any]":
    """Return the segments' lengths, the sizes of tensors and the width of each row."""
    rows = [count for layout in layouts for count in layout.rows]
    lengths = torch.tensor([*rows, *(tail for layout in layouts for tail in layout.tails)])
    sizes = torch.tensor([size for layout in layouts for size in layout.sizes], dtype=torch.float64)
    counts = torch.tensor([sum(layout.rows) for layout in layouts])
    widths = torch.tensor([layout.width for layout in layouts], dtype=torch.float64).repeat_interleave(counts)
    return lengths, sizes, widths
