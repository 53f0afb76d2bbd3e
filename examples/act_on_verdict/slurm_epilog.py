"""Slurm's EpilogSlurmctld: writes into the accounting what TrainGuard says about the job that has just ended.

    EpilogSlurmctld=/etc/slurm/trainguard_epilog.sh    # exec python3 /opt/trainguard/slurm_epilog.py

It reads SLURM_JOB_ID and SLURM_JOB_NAME of the epilog's environment. TRAINGUARD_JOB_FORMAT says how TrainGuard calls
the job, by default ``{name}-{id}``. An epilog ends no job: act_on_verdict.py ends what idles while it runs. Without a
verdict it writes nothing, and its exit code is always 0: Slurm drains the node of an epilog that fails.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from asking import ask

FORMAT = "{name}-{id}"
LONGEST = 250
TIMEOUT_S = 10.0


def comment_of(document: Mapping[str, Any]) -> str | None:
    """Return what to write, in one line; None where nothing is known."""
    if document.get("verdict") not in {"healthy", "wasted", "at_risk"}:
        return None
    lost, spent, currency = (document.get(name) for name in ("lost", "spent", "currency"))
    known = isinstance(lost, int | float) and isinstance(spent, int | float)
    cost = f", {currency} {lost:.2f} of {spent:.2f} lost" if known else ""
    words = f"TrainGuard: {document['verdict']}{cost}. {document.get('why', '')}"
    return "".join(letter if letter.isprintable() else " " for letter in words)[:LONGEST]


def main(environment: Mapping[str, str]) -> int:
    """Write the comment of one job; return the exit code, 0."""
    number, name = environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_JOB_NAME", "")
    if not number.isdecimal():
        return 0
    job = environment.get("TRAINGUARD_JOB_FORMAT", FORMAT).replace("{name}", name).replace("{id}", number)
    document = ask(job, timeout_s=TIMEOUT_S)
    comment = None if document is None else comment_of(document)
    if comment is not None:
        call = ["scontrol", "update", f"JobId={number}", f"AdminComment={comment}"]
        try:
            subprocess.run(call, check=False, timeout=TIMEOUT_S)
        except (OSError, subprocess.SubprocessError) as fault:
            sys.stderr.write(f"scontrol: {fault}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(os.environ))
