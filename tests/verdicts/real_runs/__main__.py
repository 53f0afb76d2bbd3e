"""``python -m tests.verdicts.real_runs``: what the product says about each run beside what a person sees, and counts.

``--write`` writes the table of README.md beside it, ``--profiles FOLDER`` the runs as profiles, and judges nothing.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.verdicts.real_runs.labels import labels
from tests.verdicts.real_runs.page import PAGE, counted, said_in_short, with_table
from tests.verdicts.real_runs.product import say
from tests.verdicts.real_runs.profile_writer import write_profile
from tests.verdicts.real_runs.recording import origins, read_recording
from tests.verdicts.real_runs.scoring import Score, score, totals


def scores() -> list[Score]:
    """Judge all runs."""
    return [score(label, say(run)) for run, label in labels().items()]


def main(arguments: Sequence[str]) -> None:
    """Do what the arguments ask for."""
    parser = argparse.ArgumentParser(prog="python -m tests.verdicts.real_runs", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write the table of {PAGE.name}")
    parser.add_argument("--profiles", type=Path, metavar="FOLDER", help="write the runs as profiles, and judge nothing")
    asked = parser.parse_args(arguments)
    if asked.profiles is not None:
        for run in origins():
            _print(str(write_profile(read_recording(run), asked.profiles)))
        return
    judged = scores()
    for each in judged:
        _print(_shown(each))
    _print("\n".join(counted(totals(judged))))
    if asked.write:
        PAGE.write_text(with_table(PAGE.read_text("utf-8"), judged), encoding="utf-8")


def _shown(each: Score) -> str:
    label = each.label
    mark = "named" if each.named else "not named"
    return "\n".join(
        [
            f"{label.run}  {label.outcome}, alert: {label.fire}, {label.unused_percent:.0f} % unused  ({mark})",
            f"     a person: {label.says_first}",
            f"     TrainGuard: {said_in_short(each)}",
        ]
    )


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
