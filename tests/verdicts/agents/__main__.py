"""`python -m tests.verdicts.agents`: prints how often the first change that agents get is the label's."""

import sys

from tests.verdicts.agents.trial import outcomes, table

if __name__ == "__main__":
    sys.stdout.write(table(outcomes()))
