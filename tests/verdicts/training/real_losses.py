"""Losses of real runs, as their authors published them, and what a person saw in their plots before a rule judged them.

The runs and their licences are those of ``tests/verdicts/real_runs``; of the runs with losses, all are here.
"""

import json
import lzma
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

FILE = Path(__file__).with_name("real_losses.json.xz")
Kind = Literal["broken", "healthy", "short", "unclear"]


class Label(NamedTuple):
    """What a run is, and why. ``short`` and ``healthy`` runs must have no finding; ``unclear`` ones may have one."""

    kind: Kind
    why: str


LABELS: Mapping[str, Label] = {
    "r01": Label("healthy", "falls from 0.36 to 0.0004"),
    "r02": Label("healthy", "falls from 0.3 to below 0.001, and has many single values far above its level"),
    "r03": Label("healthy", "falls from 2.2 to 0.01"),
    "r04": Label("healthy", "stands at 2.15 for 15 values, then falls to 1.1; it ended after 62"),
    "r05": Label("healthy", "falls from 2.2 to 0.05, then stays at 0.06"),
    "r10": Label("short", "one value"),
    "r12": Label("short", "three values"),
    "r19": Label("broken", "0 at each of 50 values; a log of such a run says that the loss is NaN"),
    "r21": Label("broken", "0 at each of 23 values; a log of such a run says that the loss is NaN"),
    "r32": Label("short", "83 noisy values about 16; r34 begins with the same ones, and learns"),
    "r33": Label("short", "61 noisy values about 16; r34 begins with the same ones, and learns"),
    "r34": Label("unclear", "falls from 16 to 5.65 by half of the run and stands there: learned, or collapsed"),
    "r35": Label("healthy", "falls slowly from 7.8 to 6.9 under much noise"),
    "r36": Label("broken", "5.65 at the start, at the end, and between, over 1,053 values"),
}


@cache
def losses() -> Mapping[str, Sequence[float]]:
    """Return the loss of each step by run."""
    found: Mapping[str, Sequence[float]] = json.loads(lzma.decompress(FILE.read_bytes()))
    return found
