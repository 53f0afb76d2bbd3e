"""Joins what rows of tensors gave to the tensors' reductions, on the host and in float64.

``std`` and ``variance`` are the population's. Squares of all entries come of each row's deviation and sum: float64 has
the digits that a mean far from zero needs.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from trainguard_collector.recorder.tensors.parts import ABSOLUTE, Group, Layout, source


def fold(torch: Any, groups: "Sequence[tuple[Group, Any]]", kinds: Sequence[str]) -> Any:
    """Return float32[tensors, kinds] from groups and their parts on the host, in the order of the groups' places."""
    folded = _Fold(torch, groups)
    return torch.stack([folded.reduction(kind) for kind in kinds], dim=1).float()


class _Fold:
    """The reductions of all tensors: float64[tensors]. A tensor has two segments, its rows and its tail."""

    def __init__(self, torch: Any, groups: "Sequence[tuple[Group, Any]]") -> None:
        self._torch, needs = torch, groups[0][0].needs
        columns, tails = [], []
        for group, host in groups:
            in_rows = sum(group.layout.rows)
            whole = len(needs) * in_rows
            columns.append(host[:whole].view(len(needs), in_rows))
            tails.append(host[whole:])
        self._lengths, self._sizes, self._widths = _segments(torch, tuple(group.layout for group, _ in groups))
        rows, tail = dict(zip(needs, torch.cat(columns, dim=1).double())), torch.cat(tails).double()
        added = [
            (name, *self._squares(name, rows, tail)) for name in needs if name.endswith(("sum", "l2", "deviation"))
        ]
        self._parts = dict(zip([name for name, *_ in added], self._joined("sum", added))) if added else {}
        for name in needs:
            if name not in self._parts:
                how = name[-len("min") :] if not name.endswith("prod") else "prod"
                self._parts[name] = self._joined(how, [(name, rows[name], tail.abs() if name != how else tail)])[0]

    def reduction(self, kind: str) -> Any:
        prefix, name = source(kind)
        if name == "mean":
            return self._parts[f"{prefix}sum"] / self._sizes
        if name in ("std", "variance"):
            squares = self._parts[f"{prefix}deviation"] - self._parts[f"{prefix}sum"] ** 2 / self._sizes
            variance = squares.clamp(min=0.0) / self._sizes
            return variance.sqrt() if name == "std" else variance
        if name == "l2":
            return self._parts["l2"].sqrt() if "l2" in self._parts else self._norm()
        return self._parts[f"{prefix}{name}"]

    def _squares(self, name: str, rows: "dict[str, Any]", tail: Any) -> "tuple[Any, Any]":
        """Return what is added up: sums, or squares. Deviations of a row are those from its own mean."""
        if name.endswith("sum"):
            return rows[name], tail.abs() if name.startswith(ABSOLUTE) else tail
        if name.endswith("l2"):
            return rows[name] ** 2, tail**2
        of_row = rows[name[: -len("deviation")] + "sum"]
        return rows[name] ** 2 + of_row**2 / self._widths, tail**2

    def _norm(self) -> Any:
        """Return norms from deviations, which are no numbers where entries are infinite."""
        is_infinite = self._parts["min"].isinf() | self._parts["max"].isinf()
        return self._parts["deviation"].sqrt().masked_fill(is_infinite, float("inf"))

    def _joined(self, how: str, named: "Sequence[tuple[str, Any, Any]]") -> "Sequence[Any]":
        """Return float64[tensors] for each name."""
        if self._lengths is None:
            return [each for _, each, _ in named]
        torch, tensors, lengths = self._torch, self._sizes.shape[0], self._lengths
        rows = torch.stack([each for _, each, _ in named], dim=1)
        has_tails = bool(named[0][2].shape[0])
        if has_tails:
            rows = torch.cat((rows, torch.stack([each for _, _, each in named], dim=1)))
        else:
            lengths = lengths[:tensors]
        segments = torch.segment_reduce(rows, how, lengths=lengths, unsafe=True)
        if has_tails:
            joins = {"min": torch.minimum, "max": torch.maximum, "prod": torch.mul, "sum": torch.add}
            segments = joins[how](*segments.chunk(2))
        found: Sequence[Any] = segments.unbind(1)
        return found


# Few: a list of large tensors has a number for each row, and lists of other shapes may come at every saved step.
@lru_cache(maxsize=8)
def _segments(torch: Any, layouts: "tuple[Layout, ...]") -> "tuple[Any, Any, Any]":
    """Return the segments' lengths, None where each tensor is a row; the sizes of tensors, and of each row."""
    rows = [count for layout in layouts for count in layout.rows]
    tails = [tail for layout in layouts for tail in layout.tails]
    lengths = None if set(rows) == {1} and not any(tails) else torch.tensor(rows + tails)
    sizes = torch.tensor([size for layout in layouts for size in layout.sizes], dtype=torch.float64)
    of_rows = [torch.tensor(layout.lengths or (layout.width,) * sum(layout.rows)) for layout in layouts]
    return lengths, sizes, torch.cat(of_rows).double()
