"""``python -m tests.verdicts.kernels``: which planted faults are named, and which healthy trainings have a finding."""

import sys

from tests.verdicts.kernels.scoring import table

if __name__ == "__main__":
    sys.stdout.write(table())
