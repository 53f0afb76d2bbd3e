"""Trains the recorded programs, and packs what their trainers wrote. ``../README.md`` names what must be installed.

``python -m tests.verdicts.recorded_runs.recorders FOLDER torch_runs keras_runs …`` writes a folder for each run,
``--only NAME`` one of them, ``--pack`` makes the recordings of all that lies in the folder.
"""

import argparse
import importlib
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.verdicts.recorded_runs.recorders.packing import pack


def main() -> None:
    """Do what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--pack", action="store_true")
    asked = parser.parse_args()
    for module in asked.modules:
        runs = importlib.import_module(f"tests.verdicts.recorded_runs.recorders.{module}").RUNS
        for name, record in runs.items():
            if not asked.only or name in asked.only:
                _record(name, record, asked.folder / name)
    if asked.pack:
        sys.stdout.write(f"{pack(asked.folder)} bytes\n")


def _record(name: str, record: Callable[[Path], object], folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    begun = time.monotonic()
    try:
        record(folder)
    except Exception:
        traceback.print_exc()
        shutil.rmtree(folder)
    sys.stdout.write(f"{time.monotonic() - begun:6.1f} s  {name}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
