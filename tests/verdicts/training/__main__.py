"""``python -m tests.verdicts.training``: prints how good the verdicts on training health are."""

import sys

from tests.verdicts.training.table import table

if __name__ == "__main__":
    sys.stdout.write(table())
