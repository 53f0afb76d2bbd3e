"""Ends an idle job of AWS Batch, Kubernetes, Slurm or SkyPilot by TrainGuard's verdict.

    trainguard verdict my-job --json | python act_on_verdict.py slurm 4711
    python act_on_verdict.py kubernetes training/bert --dry-run < verdict.json

It acts only on the word ``idle`` of high certainty, in a document that is a few minutes old at most and of a job that
runs. Anything else, also a document that cannot be read, means that the job is active. Exit code 0: the job was left
alone or ended. 1: the scheduler refused.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable

from asking import is_fresh, is_idle

REASON = "TrainGuard: no GPU of the job works"


def command_of_batch(job: str) -> list[str]:
    """Return what ends a job of AWS Batch, by its id."""
    return ["aws", "batch", "terminate-job", "--job-id", job, "--reason", REASON]


def command_of_kubernetes(job: str) -> list[str]:
    """Return what suspends a Job, ``namespace/name``: its pods end, and it can go on later."""
    namespace, _, name = job.rpartition("/")
    return ["kubectl", "--namespace", namespace or "default", "patch", "job", name, "-p", '{"spec":{"suspend":true}}']


def command_of_slurm(job: str) -> list[str]:
    """Return what ends a job of Slurm, by its id."""
    return ["scancel", "--signal=TERM", "--full", job]


def command_of_skypilot(job: str) -> list[str]:
    """Return what stops a cluster of SkyPilot, by its name."""
    return ["sky", "stop", "--yes", job]


COMMANDS: dict[str, Callable[[str], list[str]]] = {
    "batch": command_of_batch,
    "kubernetes": command_of_kubernetes,
    "skypilot": command_of_skypilot,
    "slurm": command_of_slurm,
}


def main(words: list[str], text: str) -> int:
    """Act on a verdict; return the exit code."""
    parser = argparse.ArgumentParser(description="End an idle job by TrainGuard's verdict, read from stdin.")
    parser.add_argument("scheduler", choices=sorted(COMMANDS))
    parser.add_argument("job", help="what the scheduler calls the job")
    parser.add_argument("--dry-run", action="store_true", help="say what would be run")
    asked = parser.parse_args(words)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not (isinstance(document, dict) and is_fresh(document, None, time.time()) and is_idle(document)):
        sys.stdout.write("The job is left alone.\n")
        return 0
    command = COMMANDS[asked.scheduler](asked.job)
    if asked.dry_run:
        sys.stdout.write(" ".join(command) + "\n")
        return 0
    return 1 if subprocess.run(command, check=False).returncode else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.stdin.read()))
