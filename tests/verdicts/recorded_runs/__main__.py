"""``python -m tests.verdicts.recorded_runs``: how good the verdicts on the recorded runs are, and where they fail.

``--folders FOLDER`` writes the runs as their trainers wrote them, a folder each, and judges nothing.
"""

import argparse
import sys
from pathlib import Path

from tests.verdicts.recorded_runs.recordings import unpack
from tests.verdicts.recorded_runs.scoring import judged, table


def main() -> None:
    """Do what the arguments ask for."""
    parser = argparse.ArgumentParser(prog="python -m tests.verdicts.recorded_runs", description=__doc__)
    parser.add_argument("--folders", type=Path, metavar="FOLDER")
    asked = parser.parse_args()
    if asked.folders is not None:
        unpack(asked.folders)
    else:
        sys.stdout.write(table(judged()))


if __name__ == "__main__":
    main()
