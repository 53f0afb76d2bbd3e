"""``make scoreboard``: judges all labelled sets and writes docs/scoreboard.md; ``--only PATTERN …`` judges some.

Each tool answers a set in a process of its own: CPU time counts all that this starts, memory is its largest process.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from fnmatch import fnmatch
from pathlib import Path

from tests.scoreboard.score import Score, failed, row
from tests.scoreboard.sets import ROOT, SETS, described

PAGE = Path("docs/scoreboard.md")
HEAD = ["| set | tool | named | false alarms | CPU s | MB |", "|---|---|--:|--:|--:|--:|"]
MARK = "<!-- written by make scoreboard -->"


def measured(name: str, place: int) -> tuple[Score, float, int]:
    """Run one tool on a set: its score, seconds of CPU, megabytes."""
    command = [sys.executable, "-m", "tests.scoreboard", "--run", name, str(place)]
    started = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    assert started.stdout is not None
    said = started.stdout.read()
    _, status, used = os.wait4(started.pid, 0)
    if status:
        raise SystemExit(f"{name}: ended with {os.waitstatus_to_exitcode(status)}")
    return Score(**json.loads(said)), used.ru_utime + used.ru_stime, used.ru_maxrss // 1024


def main() -> None:
    """Do what the arguments ask for."""
    parser = argparse.ArgumentParser(prog="python -m tests.scoreboard", description=__doc__)
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.run:
        name, place = asked.run
        sys.stdout.write(json.dumps(asdict(SETS[name][int(place)]())))
        return
    lines, failures = [*HEAD], []
    chosen = [name for name in SETS if any(fnmatch(name, pattern) for pattern in asked.only)]
    for name in chosen:
        for place in range(len(SETS[name])):
            score, cpu_s, peak_mb = measured(name, place)
            lines.append(row(name, score, cpu_s, peak_mb))
            failures += failed(name, score)
            sys.stderr.write(f"{lines[-1]}\n")
    asked_git = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(asked_git, cwd=ROOT, capture_output=True, text=True).stdout
    written = [f"On {time.strftime('%Y-%m-%d', time.gmtime())}, commit {commit.strip()}:", "", *lines, ""]
    if left_out := [name for name in SETS if name not in chosen]:
        written += [f"Not judged in this run: {', '.join(left_out)}.", ""]
    written += ["## Right is", "", *described(), "", "## What fails", "", *failures]
    page = ROOT / PAGE
    above = page.read_text("utf-8").partition(MARK)[0]
    page.write_text("\n".join([above + MARK, "", *written, ""]), "utf-8")


if __name__ == "__main__":
    main()
