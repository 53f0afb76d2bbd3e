"""`make verdicts`: prints how good the verdicts are."""

import sys

from tests.verdicts.running import figures_of
from tests.verdicts.table import table

if __name__ == "__main__":
    sys.stdout.write(table(figures_of()))
