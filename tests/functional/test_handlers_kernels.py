"""plan_capture, digest_trace and join_capture as they are deployed, asked for by the evaluator as it is."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from demo.uploads import RecordedObject
from tests.functional.deployment import BUCKET, JOB, PREFIX, Deployment, object_message, ringing
from tests.support.captures import EVEN, HELD_UP
from tests.support.kernel_ranks import documents
from tests.support.memory_snapshots import MIB, Allocator, Training, pickled
from trainguard.core.ports import StreamTask
from trainguard.core.records import Status
from trainguard.engine.messages import encode_task
from trainguard.kernels.captures.keys import ALL_RANKS, KERNELS

AT = 1_784_021_000.0
REPORT = f"{PREFIX}{JOB}/rule-output/TrainGuardReport/"

pytestmark = pytest.mark.filterwarnings("ignore:No application metrics to publish")


def traces() -> list[RecordedObject]:
    """Return a capture whose third rank is late."""
    return [
        RecordedObject(
            key=f"{PREFIX}{JOB}/kernel-traces/host_{rank}.{round(AT * 1_000) + rank}.pt.trace.json",
            appears_at=AT + rank,
            body=json.dumps(document).encode(),
        )
        for rank, document in enumerate(documents(EVEN, delay_us=HELD_UP))
    ]


def snapshots() -> list[RecordedObject]:
    """Return memory snapshots of two ranks; the second one is no plain pickle."""
    training = Training(Allocator(limit=400 * MIB), logits=260)
    training.setup()
    with pytest.raises(MemoryError):
        training.run(3)
    bodies = [pickled(training.allocator.snapshot()), b"\x80\x04cos\nsystem\n."]
    return [
        RecordedObject(
            key=f"{PREFIX}{JOB}/tensorboard-output/rank{rank}_memory_snapshot.pickle", appears_at=AT + 5.0, body=body
        )
        for rank, body in enumerate(bodies)
    ]


def settled(deployment: Deployment, others: Sequence[RecordedObject] = ()) -> dict[str, Any]:
    """Let the traces and others come and settle; return the input of the execution that is asked for."""
    objects = [*traces(), *others]
    deployment.put(objects)
    evaluate = deployment.function("evaluate_objects")
    evaluate(ringing([object_message(each.key, at=each.appears_at) for each in objects]))
    flush = encode_task(StreamTask(JOB, ALL_RANKS, KERNELS, "flush", AT + 60.0))
    assert evaluate(ringing([flush])).value == {"batchItemFailures": []}
    (call,) = deployment.world.captured().values()
    return dict(call)


def test_settled_capture_fires_and_its_page_is_by_the_report(
    deployment: Deployment,
) -> None:
    deployment.create_training_job()
    call = settled(deployment)
    planned = deployment.function("plan_capture")(call, remaining_ms=(300_000,)).value
    assert planned["count"] == len(planned["items"]) == len(EVEN)
    digest = deployment.function("digest_trace")
    answers = [digest(item, remaining_ms=(900_000,)).value for item in planned["items"]]
    assert [each["fault"] for each in answers] == [""] * len(EVEN)
    joined = deployment.function("join_capture")(call, remaining_ms=(900_000,)).value
    assert (joined["traces"], joined["unread"]) == (4, 0)
    deployment.function("evaluate_objects")(deployment.tasks())
    row = deployment.world.rows.load(JOB, f"kernels/LateRank#{ALL_RANKS}")
    assert row is not None
    assert row.status is Status.FIRED
    names = {each.key.removeprefix(REPORT) for each in deployment.world.objects.list(BUCKET, REPORT, "")}
    assert {"kernels.html", "kernels.json"} <= names
    assert not [name for name in names if name.startswith("kernels/runs/")]
    assert json.loads(deployment.world.objects.get(BUCKET, f"{REPORT}kernels.json", 1 << 24))["job"] == JOB
    assert (
        f"<h1><bdi>{JOB}</bdi></h1>" in deployment.world.objects.get(BUCKET, f"{REPORT}kernels.html", 1 << 24).decode()
    )
    facts = json.loads(deployment.world.objects.get(BUCKET, f"{REPORT}kernels.json", 1 << 24))["job_facts"]
    assert (facts["arn"].endswith(f":training-job/{JOB}"), facts["status"]) == (True, "InProgress")
    fired = [each["rule"] for each in deployment.world.started().values()]
    assert "kernels/LateRank" in fired


def test_snapshots_beside_a_capture_reach_row_fire_and_page(deployment: Deployment) -> None:
    deployment.create_training_job()
    call = settled(deployment, snapshots())
    planned = deployment.function("plan_capture")(call, remaining_ms=(300_000,)).value
    digest = deployment.function("digest_trace")
    answers = {item["name"]: digest(item, remaining_ms=(900_000,)).value["fault"] for item in planned["items"]}
    assert len(answers) == len(EVEN) + 2
    assert "expected plain values" in answers["tensorboard-output/rank1_memory_snapshot.pickle"]
    joined = deployment.function("join_capture")(call, remaining_ms=(900_000,)).value
    assert (joined["traces"], joined["unread"], joined["snapshots"]) == (4, 0, 2)
    assert "kernels/GpuMemoryRanOut" in joined["fired"]
    deployment.function("evaluate_objects")(deployment.tasks())
    row = deployment.world.rows.load(JOB, f"kernels/GpuMemoryRanOut#{ALL_RANKS}")
    assert row is not None
    assert (row.status, row.worst) == (Status.FIRED, "rank 0")
    fires = {each["rule"]: each for each in deployment.world.started().values()}
    assert {"kernels/LateRank", "kernels/GpuMemoryRanOut"} <= fires.keys()
    assert "An allocation of 272.6 MB failed" in str(fires["kernels/GpuMemoryRanOut"])
    page = deployment.world.objects.get(BUCKET, f"{REPORT}kernels.html", 1 << 24).decode()
    assert 'id="finding-GpuMemoryRanOut"' in page


def test_trace_slower_than_the_remaining_time_is_in_its_digest(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment.create_training_job()
    call = settled(deployment)
    planned = deployment.function("plan_capture")(call).value
    digest = deployment.function("digest_trace")
    answer = digest(planned["items"][0], remaining_ms=(30_000,)).value
    assert answer["fault"].startswith("it was not read within")
    brief = [each.key for each in deployment.world.objects.list(BUCKET, f"{REPORT}kernels/digests/", "")]
    assert len(brief) == 1
    assert brief[0].endswith("-brief.json")
