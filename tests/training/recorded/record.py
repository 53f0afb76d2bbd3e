"""Runs the programs and writes their series down: ``python -m tests.training.recorded.record``. Needs torch.

A run's name is ``half/kind/program/seed``: ``half`` is ``a`` or ``b`` (thresholds were chosen on ``a`` alone), ``kind``
is ``broken``, ``repaired`` or ``healthy``. Numbers have five digits; steps beyond 1,200 are not kept.
"""

import json
import lzma
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from tests.training.recorded.healthy import HEALTHY
from tests.training.recorded.pairs_a import PAIRS as FIRST
from tests.training.recorded.pairs_b import PAIRS as SECOND
from tests.training.recorded.programs import Log

FILE = Path(__file__).with_name("runs.json.xz")
SEEDS = range(5)
MOST_STEPS = 1_200


def recorded(program: Callable[[], Log], seed: int) -> dict[str, dict[str, list[float | str]]]:
    torch.manual_seed(1_000 + seed)
    log = program()
    return {"epochs": _short(log.epochs), "steps": _short(log.steps)}


def _short(series: dict[str, list[float]]) -> dict[str, list[float | str]]:
    return {name: [_number(value) for value in values[:MOST_STEPS]] for name, values in series.items()}


def _number(value: float) -> float | str:
    text = f"{value:.5g}"
    return text if text in {"nan", "inf", "-inf"} else float(text)


def main() -> None:
    torch.set_num_threads(1)
    runs = {}
    pairs = [*FIRST, *SECOND]
    for seed in SEEDS:
        for place, program in enumerate(pairs):
            for kind in ("broken", "repaired"):
                name = f"{'ab'[place % 2]}/{kind}/{program.__name__}/{seed}"
                runs[name] = recorded(lambda: program(kind == "broken"), seed)  # noqa: B023
        for place, healthy in enumerate(HEALTHY):
            runs[f"{'ab'[place % 2]}/healthy/{healthy.__name__}/{seed}"] = recorded(healthy, seed)
        sys.stderr.write(f"seed {seed}: {len(runs)} runs\n")
    FILE.write_bytes(lzma.compress(json.dumps(runs, separators=(",", ":")).encode(), preset=9))
    sys.stderr.write(f"{FILE.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main()
