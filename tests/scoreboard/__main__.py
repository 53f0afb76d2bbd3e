"""``make scoreboard``: judges all labelled sets and writes docs/scoreboard.md.

``--only PATTERN …`` judges some: of the others the page keeps what it has, with the date and commit of that.

Each tool answers a set in a process of its own: CPU time counts all that this starts, memory is its largest process.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from fnmatch import fnmatch
from pathlib import Path

from tests.scoreboard.score import Score, failed, row
from tests.scoreboard.sets import ROOT, SETS, described

PAGE = Path("docs/scoreboard.md")
HEAD = ["| set | tool | named | false alarms | CPU s | MB | judged |", "|---|---|--:|--:|--:|--:|---|"]
FAILS = "## What fails"
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
    page = ROOT / PAGE
    above, _, before = page.read_text("utf-8").partition(MARK)
    found = {}
    for name in SETS:
        if any(fnmatch(name, pattern) for pattern in asked.only):
            found[name] = judged(name)
    page.write_text(above + written(found, before), "utf-8")


def judged(name: str) -> tuple[list[str], list[str]]:
    """Let each tool answer a set; return its lines of the table, and of the failures."""
    asked_git = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(asked_git, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    lines, failures = [], []
    for place in range(len(SETS[name])):
        score, cpu_s, peak_mb = measured(name, place)
        lines.append(f"{row(name, score, cpu_s, peak_mb)} {time.strftime('%Y-%m-%d', time.gmtime())}, {commit} |")
        failures += failed(name, score)
        sys.stderr.write(f"{lines[-1]}\n")
    return lines, failures


def written(found: Mapping[str, tuple[list[str], list[str]]], before: str) -> str:
    """Return the written part of the page: of sets that were not judged now what it had ``before``."""
    lines, failures = [], []
    for name in SETS:
        kept = before.splitlines()
        of_set = (
            [each for each in kept if each.startswith(f"| {name} |")],
            [each for each in kept if each.startswith(f"* {name}, ")],
        )
        new_lines, new_failures = found.get(name, of_set)
        lines += new_lines
        failures += new_failures
    missing = [name for name in SETS if not any(each.startswith(f"| {name} |") for each in lines)]
    more = [f"Not judged yet: {', '.join(missing)}.", ""] if missing else []
    return "\n".join(
        [MARK, "", *HEAD, *lines, "", *more, "## Right is", "", *described(), "", FAILS, "", *failures, ""]
    )


if __name__ == "__main__":
    main()
