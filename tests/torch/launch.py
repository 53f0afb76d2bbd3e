"""Starts the ranks of a job of this machine's, which rendezvous by a file."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_ranks(program: str, arguments: list[str], folder: Path, *, world: int) -> None:
    """Run ``python -m program`` as so many ranks, and see each of them end well."""
    ranks = []
    for rank in range(world):
        variables = {
            "TRAINGUARD_OUTPUT": str(folder / "output"),
            "TRAINGUARD_SPOOL": str(folder / "spool"),
            "TRAINGUARD_JOB": "run-1",
            "TRAINGUARD_NODE": "node-1",
            "TRAINGUARD_AUTOSTART": "0",
            "RENDEZVOUS": (folder / "rendezvous").as_uri(),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(world),
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-m", program, *arguments]
        ranks.append(subprocess.Popen(command, env={**os.environ, **variables}, cwd=ROOT, stderr=subprocess.PIPE))
    for each in ranks:
        error = each.communicate()[1].decode()
        assert each.returncode == 0, error
