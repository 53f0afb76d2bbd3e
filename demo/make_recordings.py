"""Writes the recorded jobs: ``python -m demo.make_recordings [FOLDER]``, by default ``events/jobs``."""

import sys
from pathlib import Path

from demo.synthesis import record
from demo.workloads import WORKLOADS

RECORDINGS = Path(__file__).parent.parent / "events" / "jobs"
# 2026-07-14T09:24:00Z.
START = 1_784_021_040

SEED = 20_260_714


def main(folder: Path) -> None:
    """Write every recording into ``folder``, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, workload) in enumerate(WORKLOADS.items()):
        path = folder / f"{name}.npz"
        recording = record(workload, seed=SEED + number, start=START)
        recording.save(path)
        print(f"{path}: {recording.ended_s / 60:.1f} min, {path.stat().st_size / 1_000:.0f} KB")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDINGS)
