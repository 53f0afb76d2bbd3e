"""``python -m tests.torch.hangs COUNT [SEED]``: how many planted hangs are named."""

import sys
import tempfile
from pathlib import Path

from tests.torch.hangs.ranks import drawn, run
from trainguard.local.hangs import judge_hang


def main(count: int, seed: int) -> None:
    right = 0
    for hang in drawn(seed, count):
        with tempfile.TemporaryDirectory() as folder:
            run(hang, Path(folder))
            verdict = judge_hang(folder)
        is_right = set(verdict.culprits) == set(hang.ranks)
        right += is_right
        line = f"{'right' if is_right else 'WRONG'} {hang.name} {verdict.culprits} {verdict.reason} {verdict.line}\n"
        sys.stdout.write(line)
        sys.stdout.flush()
    sys.stdout.write(f"{right} of {count}: {100 * right / count:.1f} %\n")


main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
