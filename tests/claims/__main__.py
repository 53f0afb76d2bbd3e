"""``python -m tests.claims [SOURCE ...]``: what is said about jobs and is untrue; without a source, of all of them.

Sources are labelled, real, recordings, random, steps, training, tensors, kernels and snapshots; ``--jobs N`` draws
so many random jobs.
"""

import argparse
import sys
from collections.abc import Sequence

from tests.claims.check import Checked, table
from tests.claims.sources import RANDOM_JOBS, over_all_cores, sources


def main(arguments: Sequence[str]) -> int:
    """Print a table a source; return 1 when something is untrue, or unknown."""
    parser = argparse.ArgumentParser(prog="python -m tests.claims", description=__doc__)
    parser.add_argument("source", nargs="*", choices=[[], *sources(0)], help="which jobs")
    parser.add_argument("--jobs", type=int, default=RANDOM_JOBS, help="how many random jobs")
    asked = parser.parse_args(arguments)
    wrong = 0
    for name, (check, jobs) in sources(asked.jobs).items():
        if asked.source and name not in asked.source:
            continue
        found = Checked()
        for each in over_all_cores(check, jobs):
            found.add(each)
        sys.stdout.write(f"{name}: {table(found)}\n")
        sys.stdout.flush()
        wrong += len(found.untrue) + sum(found.unknown.values())
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
