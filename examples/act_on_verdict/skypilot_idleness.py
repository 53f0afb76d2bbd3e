"""An idleness provider for SkyPilot's autostop: says whether a cluster is active or idle, by TrainGuard's verdicts.

    python skypilot_idleness.py bert-0 bert-1 --timeout 10
    {"status": "idle", "reason": "bert-0, bert-1: no GPU works"}

It follows the rule of SkyPilot's proposal (skypilot-org/skypilot#10628): unavailable, malformed or late means active. A
cluster is idle where each of its jobs is, for sure; one without a job is active. The exit code is 0 for both answers.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence

from asking import TIMEOUT_S, ask, is_idle


def idleness(jobs: Sequence[str], timeout_s: float) -> dict[str, str]:
    """Return ``status``, "active" or "idle", and its ``reason``; it takes ``timeout_s`` seconds at most."""
    end = time.monotonic() + timeout_s
    for job in jobs:
        left = end - time.monotonic()
        document = ask(job, timeout_s=left) if left > 0.0 else None
        if not is_idle(document):
            word = "no verdict that can be used" if document is None else str(document.get("verdict"))[:40]
            return {"status": "active", "reason": f"{job}: {word}"}
    if not jobs:
        return {"status": "active", "reason": "no job is named"}
    return {"status": "idle", "reason": f"{', '.join(jobs)}: no GPU works"}


def main(words: list[str]) -> int:
    """Print the answer; return the exit code."""
    parser = argparse.ArgumentParser(description="Say whether a cluster is active or idle, by TrainGuard's verdicts.")
    parser.add_argument("jobs", nargs="*", help="names of the cluster's jobs, as TrainGuard knows them")
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, help="seconds for the whole answer")
    asked = parser.parse_args(words)
    sys.stdout.write(json.dumps(idleness(asked.jobs, asked.timeout)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
