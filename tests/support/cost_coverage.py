"""How much of the time of operators has a cost and a place on the roofline: ``python -m tests.support.cost_coverage``.

Takes Kineto traces; prints for each the shares of linked operator time, and operators without a cost.
"""

import sys
from collections import Counter
from pathlib import Path

from trainguard.kernels.profile import rank_profile
from trainguard.kernels.readers.kineto import read_trace

SHOWN = 8


def main(paths: list[str]) -> None:
    for path in paths:
        with Path(path).open("rb") as stream:
            operators = rank_profile(read_trace(path, stream)).operators
        whole = sum(each.kernel_ns for each in operators)
        if not whole:
            continue
        costed = sum(each.kernel_ns for each in operators if each.flops is not None)
        rated = sum(each.kernel_ns for each in operators if each.roofline_share is not None)
        sys.stdout.write(f"{costed / whole:7.1%} with a cost {rated / whole:7.1%} rated  {Path(path).name}\n")
        without: Counter[str] = Counter()
        for each in operators:
            if each.flops is None:
                without[each.name] += each.kernel_ns
        most = [f"{name} {ns / whole:.1%}" for name, ns in without.most_common(SHOWN)]
        sys.stdout.write(f"    {', '.join(most)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
