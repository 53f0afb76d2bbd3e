"""The product as a user runs it: `trainguard analyze FOLDER --json`, in this process."""

import contextlib
import io
import json
import tempfile
from pathlib import Path

from tests.verdicts.labelled.description import Job
from tests.verdicts.labelled.machines import price_table
from tests.verdicts.labelled.profile_files import write_job
from tests.verdicts.labelled.reported import Reported, read_report
from trainguard.cli.commands.analyze.run import AnalyzeRequest, analyze_command


def analyzed(job: Job) -> Reported:
    """Write the job's profile, analyze it, and return what the report says; nothing is left on disk."""
    with tempfile.TemporaryDirectory(prefix="verdicts-") as place:
        folder = write_job(job, Path(place))
        prices = Path(place, "prices.json")
        prices.write_text(json.dumps(price_table()))
        out = Path(place, "out")
        request = AnalyzeRequest(
            source=str(folder), out=out, instance_type=job.machine.instance_type, prices=prices, as_json=True
        )
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = analyze_command(request)
        if code not in {0, 3}:  # 3: nothing could be evaluated
            raise RuntimeError(f"{job.name}: analyze ended with {code}: {said.getvalue()}")
        return read_report(json.loads((out / "report.json").read_text()))
