"""Tests with the clusters' own programs; collected only where they are installed: `make test-clusters`."""

import shutil
from pathlib import Path

PYTHON = Path(__file__).parents[2] / "build" / "clusters" / "bin" / "python"
collect_ignore = [
    *([] if shutil.which("slurmctld") and shutil.which("munged") else ["test_real_slurm.py"]),
    *([] if PYTHON.exists() else ["test_chart.py"]),
]
