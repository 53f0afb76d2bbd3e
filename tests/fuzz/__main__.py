"""``python -m tests.fuzz [--seconds 3600] [--seed 0] [--part 1/1] [NAME ...]``: fuzzes every parser and function.

rc 1 when one fails. With ``--part 2/3``, only the second third of the targets is fuzzed: parts run beside one another.
"""

import argparse
import hashlib
import sys
from pathlib import Path

from tests.fuzz.run import fuzz
from tests.fuzz.targets import TARGETS

# Inputs that a target failed on.
KEPT = Path("build/fuzz")


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3_600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("names", nargs="*", help="parts of targets' names")
    given = parser.parse_args()
    targets = [each for each in TARGETS if not given.names or any(name in each.name for name in given.names)]
    part, parts = map(int, given.part.split("/"))
    targets = targets[part - 1 :: parts]
    outcome = fuzz(targets, seconds=given.seconds, seed=given.seed, told=_say)
    for target in targets:
        _say(f"{target.name:28} {outcome.read[target.name]:9,} read {outcome.refused[target.name]:9,} refused")
    for defect in outcome.defects.values():
        KEPT.mkdir(parents=True, exist_ok=True)
        file = KEPT / hashlib.sha256(defect.body).hexdigest()[:16]
        file.write_bytes(defect.body)
        _say(f"\n{defect.target}: {defect.what}\n  at {defect.where}\n  input {file}, {len(defect.body):,} bytes")
    return bool(outcome.defects)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(_main())
