"""The collector's demonstration: ``python -m demo.collect``. Exit status 0 when all was seen that must be, else 1."""

import sys

from demo.collect.run import run
from demo.live.show import performed

if __name__ == "__main__":
    sys.exit(performed(run))
