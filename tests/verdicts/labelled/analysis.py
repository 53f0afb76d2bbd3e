"""The product as a user runs it: `trainguard analyze FOLDER --json`, in this process."""

import json
import re
import tempfile
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from tests.claims.check import Checked, checked
from tests.claims.context import raw_of
from tests.verdicts.labelled.description import Job
from tests.verdicts.labelled.machines import price_table
from tests.verdicts.labelled.profile_files import start_of, write_job
from tests.verdicts.labelled.reported import Reported, read_report
from trainguard.cli.main import app


def analyzed(job: Job) -> tuple[Reported, Checked]:
    """Return what the report of a job says, in the scorer's terms, and what of it does not agree with the raw data."""
    with tempfile.TemporaryDirectory(prefix="verdicts-") as place:
        folder = write_job(job, Path(place))
        report = _report(job, folder, Path(place))
        return read_report(report), checked(job.name, raw_of(folder), report)


def report_of(job: Job, *, until_min: float | None = None) -> dict[str, Any]:
    """Write the job's profile, analyze it, and return its ``report.json``; nothing is left on disk.

    With ``until_min`` the job still runs: it is as it was so many minutes after its start.
    """
    with tempfile.TemporaryDirectory(prefix="verdicts-") as place:
        folder = write_job(job, Path(place))
        if until_min is not None:
            _run_still(folder, start_of(job) + 60.0 * until_min)
        return _report(job, folder, Path(place))


def _report(job: Job, folder: Path, place: Path) -> dict[str, Any]:
    prices, out = place / "prices.json", place / "out"
    prices.write_text(json.dumps(price_table()))
    words = ["analyze", str(folder), "--out", str(out), "--prices", str(prices), "--json"]
    words += [] if job.machine.instance_type is None else ["--instance-type", job.machine.instance_type]
    done = CliRunner().invoke(app, words)
    if done.exit_code not in {0, 3}:  # 3: nothing could be evaluated
        raise RuntimeError(f"{job.name}: analyze ended with {done.exit_code}: {done.output}")
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    return report


def _run_still(folder: Path, now: float) -> None:
    """Take away what a job's folder has after ``now``, epoch seconds."""
    for mark in folder.rglob("training_job_end.ts"):
        mark.unlink()
    for file in folder.rglob("*.json"):
        written = re.match(r"\d+", file.name)
        if written is not None and float(written.group()[:10]) > now:
            file.unlink()
    description = json.loads((folder / "job.json").read_text())
    del description["ended_at"]
    (folder / "job.json").write_text(json.dumps({**description, "status": "InProgress"}))
