"""A recorded run as a run file of W&B: the same verdict as from its profile."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.analyses import analyzed
from tests.support.wandb_files import ended, run, run_file, stats
from tests.verdicts.real_runs.labels import labels
from tests.verdicts.real_runs.product import finding_on, say
from tests.verdicts.real_runs.profile_writer import START
from tests.verdicts.real_runs.recording import Recording, read_recording
from trainguard.cli.commands.analyze.outcome import document_of

pytestmark = pytest.mark.verdicts

_NAMES = {"u": "gpu.{}.gpu", "a": "gpu.{}.memory", "c": "cpu.{}.cpu_percent", "ram": "memory_percent"}


@pytest.mark.parametrize("name", list(labels())[::4])
def test_verdict_on_a_run_file_is_that_on_its_profile(name: str, tmp_path: Path) -> None:
    file = tmp_path / f"run-{name}.wandb"
    file.write_bytes(_run_file(read_recording(name)))
    from_file = finding_on(document_of(analyzed(str(file))))
    from_profile = say(name)
    assert from_file.fired == from_profile.fired
    assert from_file.level == from_profile.level
    wasted = [each.wasted_percent for each in from_profile.findings]
    assert [each.wasted_percent for each in from_file.findings] == pytest.approx(wasted, rel=0.05)
    assert from_file.unread == {}


def _run_file(recording: Recording) -> bytes:
    """Return the run as W&B would have recorded it, rates of the network as what was received until then."""
    records = [run(recording.origin.name, at=START, host="algo-1")]
    received = 0.0
    before = 0.0
    for index, seconds in enumerate(recording.times.tolist()):
        values = {}
        for column, found in recording.columns.items():
            value = float(found[index])
            kind = column.rstrip("0123456789")
            if np.isnan(value):
                continue
            if kind == "net":
                received += value * (seconds - before)
                values["network.recv"] = received
            elif kind in _NAMES:
                values[_NAMES[kind].format(column[len(kind) :])] = value
        before = seconds
        records.append(stats(START + seconds, json.loads(json.dumps(values))))
    code = recording.origin.exit_code
    return run_file([*records, *([] if code is None else [ended(code)])])
