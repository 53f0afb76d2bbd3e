"""A job hangs in a collective: the deployed functions see it within five minutes and stop it, if its owner allows."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest

from demo.uploads import RecordedObject
from tests.functional.deployment import BUCKET, JOB, OPTED_IN, PREFIX, Deployment, object_message, ringing
from tests.hangs.simulated import Fault
from tests.hangs.simulated import Job as Ranks
from tests.verdicts.labelled.catalogue.collector import HANGS
from tests.verdicts.labelled.description import Job
from tests.verdicts.labelled.profile_files import START, write_job
from trainguard.aws.lambda_invocations import payload_of
from trainguard.core.ports import ReconcileRequest
from trainguard.core.timestamps import iso_time

RULE = "HungJob"
UPLOAD_S, QUEUE_S, SCHEDULE_S = 5.0, 25.0, 60.0
HANG_MIN, WATCHED_MIN = 24.0, 16

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics to publish")


def hung(*, steps: bool) -> Job:
    """Return a labelled hang, shorter: it begins at minute 24, when nothing of the start is waited for."""
    job = next(each for each in HANGS if each.name == "collected-hang-in-a-collective")
    pieces = [replace(piece, start_min=min(piece.start_min, HANG_MIN)) for piece in job.pieces]
    assert job.steps is not None
    seen = replace(job.steps, last_min=HANG_MIN, step_s=3.0) if steps else None
    return replace(job, name=JOB, minutes=40.0, pieces=tuple(pieces), interval_s=5.0, steps=seen)


def objects(folder: Path) -> list[RecordedObject]:
    """Return the job's objects as a collector uploads them: each minute a few seconds after its end."""
    found = []
    for file in sorted((folder / "profiler-output").rglob("*.json")):
        stamp = float(file.name.split("_")[0].split(".")[0])
        end = stamp / 1e6 if stamp > 1e12 else stamp + 60.0
        key = f"{PREFIX}{JOB}/{file.relative_to(folder)}"
        found.append(RecordedObject(key=key, appears_at=end + UPLOAD_S, body=file.read_bytes()))
    return sorted(found, key=lambda each: each.appears_at)


def ticks(deployment: Deployment, uploads: list[RecordedObject], monkeypatch: pytest.MonkeyPatch) -> Iterator[float]:
    """Let minutes pass from before the hang on; yield each run of the scheduler's time, after it.

    The functions' clock is that of the scheduler runs. A slowly polled job is looked at in every third of them.
    """
    evaluate, reconcile = deployment.function("evaluate_objects"), deployment.function("reconcile_job")
    waiting = list(uploads)
    begin = START + 60.0 * (HANG_MIN - 4.0)
    now = [begin]
    clock = SimpleNamespace(time=lambda: now[0], sleep=lambda _: None)
    monkeypatch.setattr("trainguard.aws.function_limits.time", clock)
    for number in range(WATCHED_MIN):
        at = now[0] = begin + SCHEDULE_S * number
        ready = [each for each in waiting if each.appears_at + QUEUE_S <= at]
        waiting = [each for each in waiting if each.appears_at + QUEUE_S > at]
        deployment.put(ready)
        for first in range(0, len(ready), 50):
            batch = ready[first : first + 50]
            evaluate(ringing([object_message(each.key, at=each.appears_at) for each in batch]))
        if deployment.world.jobs.polled_fast() or number % 3 == 0:
            reconcile(json.loads(payload_of(ReconcileRequest(JOB, at, 1))))
        yield at


def fire_of(deployment: Deployment) -> dict[str, object] | None:
    fires = [each for each in deployment.world.started().values() if each["rule"] == RULE]
    return fires[0] if fires else None


@pytest.mark.parametrize(
    ("steps", "every_s", "within_min"),
    [(True, 180, 5.0), pytest.param(True, 300, 7.0, marks=pytest.mark.thorough), (False, 180, 10.0)],
)
def test_hung_job_is_stopped_in_time(
    deployment: Deployment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    steps: bool,
    every_s: int,
    within_min: float,
) -> None:
    deployment.create_training_job(tags=OPTED_IN | {"trainguard:evaluation-every-s": str(every_s)})
    uploads = objects(write_job(hung(steps=steps), tmp_path))
    with monkeypatch.context() as patched:
        fired_at = next((at for at in ticks(deployment, uploads, patched) if fire_of(deployment) is not None), None)
    assert fired_at is not None
    hang_at = START + 60.0 * HANG_MIN
    assert 0.0 < fired_at - hang_at <= 60.0 * within_min
    fire = fire_of(deployment)
    assert fire is not None
    assert fire["severity"] == "critical"
    assert "4 GPUs have looked busy at " in str(fire["reason"])
    # The state machine names the row after the fire before it asks.
    deployment.world.update_row(
        JOB,
        RULE,
        {"FireId": {"S": str(fire["fireId"])}, "Status": {"S": "FIRED"}, "Reason": {"S": str(fire["reason"])}},
    )
    answer = deployment.function("decide_stop")(fire | {"firedAt": iso_time(time.time() - 60.0)})
    assert (answer.value["stop"], answer.value["decision"]) == (True, "stop"), answer.value["why"]


def dumps_at(at: float) -> list[RecordedObject]:
    """Return the dumps of 8 ranks, of which rank 5 is in a lock, as the collector uploads them at a time."""
    job = Ranks(8, fault=Fault(kind="lock", ranks=(5,), step=3))
    job.run()
    with TemporaryDirectory() as folder:
        job.write(Path(folder), as_json=False, only_active=False)
        place = f"{PREFIX}{JOB}/hang-dumps/algo-1/{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H-%M-%SZ}/"
        return [
            RecordedObject(key=place + each.name, appears_at=at + UPLOAD_S, body=each.read_bytes())
            for each in sorted(Path(folder).iterdir())
        ]


@pytest.mark.parametrize("dumped_min", [3.0, 9.0])
def test_dumps_name_the_rank_in_alert_row_and_report(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dumped_min: float
) -> None:
    """Dumps that are there when the rule fires are in its alert; later ones are an alert of their own."""
    deployment.create_training_job(tags={"trainguard:evaluation-every-s": "180"})
    uploads = objects(write_job(hung(steps=True), tmp_path))
    dumped_at = START + 60.0 * (HANG_MIN + dumped_min)
    waiting = dumps_at(dumped_at)
    with monkeypatch.context() as patched:
        for at in ticks(deployment, uploads, patched):
            if at >= dumped_at:
                deployment.put(waiting)
                waiting = []
            for name, asked in deployment.world.reported().items():
                if name.startswith("hang-"):
                    deployment.function("build_report")(asked)
    told = [each for each in deployment.world.started().values() if each["rule"] == RULE]
    told.sort(key=lambda each: each["kind"] != "fire")
    named = [each["kind"] for each in told if "rank 5 of algo-1 has finished" in str(each["reason"])]
    kinds = ["fire"] if dumped_min < 5.0 else ["fire", "cause"]
    assert ([each["kind"] for each in told], named) == (kinds, kinds[-1:])
    assert "Look at the stacks of rank 5 of algo-1" in str(told[-1]["advice"])
    row = deployment.world.row(JOB, RULE)
    assert "rank 5 of algo-1" in row["Reason"]["S"]
    place = f"{PREFIX}{JOB}/rule-output/TrainGuardReport/report.json"
    report = json.loads(deployment.clients.s3.get_object(Bucket=BUCKET, Key=place)["Body"].read())
    assert [each["rank"] for each in hang_of(report)["named"]] == [5]


def hang_of(report: dict[str, Any]) -> dict[str, Any]:
    (entry,) = [each for each in report["rules"] if each["rule"] == RULE]
    return next(each["hang"] for each in entry["details"].values() if "hang" in each)
