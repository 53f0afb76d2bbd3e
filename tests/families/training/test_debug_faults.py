"""What is broken, missing, late or forged in debug-output: counted and named, and never an all-clear."""

from dataclasses import replace

import pytest

from tests.families.training.runs import (
    FAMILIES,
    FOLDER,
    arrive,
    debug_item,
    fires_of,
    network_of,
    rows_of,
    run_files,
    uploads_of,
)
from tests.families.training.step_rules import HIGH_LOSS, SAME_WEIGHTS
from tests.support.delivery import Network
from tests.support.faults import Fault
from tests.support.small_job import START, Upload, describe
from tests.support.tensor_files import HookWriter
from trainguard.core.records import JobStatus, Status
from trainguard.engine.training.debug_session import NO_DATA


def index_key(step: int, worker: str = "worker_0") -> str:
    return f"{FOLDER}index/000000000/{step:012d}_{worker}.json"


def reasons(network: Network, what: str) -> list[str]:
    return [str(entry.where["reason"]) for entry in network.world.journal.entries if entry.what == what]


def close(network: Network) -> None:
    """Let SageMaker say that the job has ended, and the scheduler see it."""
    network.world.training_jobs.set(describe(status=JobStatus.COMPLETED))
    for _ in range(29):
        network.now += 60.0
        network.run_scheduler()
        network.run_until(network.now + 30.0, batch_s=0.0)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"meta": {}}', b"\xff\xfe", b'{"meta": 1, "tensor_payload": []}'])
def test_broken_index_of_one_worker_leaves_the_others(
    body: bytes,
) -> None:
    files = run_files([1.0, 200.0], workers=2)
    files["index/000000000/000000000001_worker_1.json"] = body
    network = network_of(uploads_of(files))
    assert fires_of(network) == [(HIGH_LOSS, "all-workers", 200.0)]
    assert debug_item(network).counters == {"bad_objects": 1}
    assert "000000000001_worker_1.json" in reasons(network, "bad_objects")[0]


def test_unreadable_step_is_counted_and_the_next_is_judged() -> None:
    files = run_files([1.0, 200.0, 300.0])
    files["index/000000000/000000000001_worker_0.json"] = b"{"
    network = network_of(uploads_of(files))
    assert fires_of(network) == [(HIGH_LOSS, "all-workers", 300.0)]
    item = debug_item(network)
    assert (item.cursors["step"], item.counters) == (2, {"bad_objects": 1})


def test_broken_event_file_is_named_and_gives_no_all_clear() -> None:
    files = run_files([1.0])
    events = "events/000000000000/000000000000_worker_0.tfevents"
    files[events] = files[events][:40] + b"\0" * 8 + files[events][48:]
    network = network_of(uploads_of(files))
    assert debug_item(network).counters["bad_tensors"] >= 1
    assert events in reasons(network, "bad_tensors")[0]
    assert rows_of(network)[f"{HIGH_LOSS}#all-workers"].status is Status.ERROR


def test_missing_index_and_missing_events_do_not_stop_the_run() -> None:
    files = run_files([1.0, 1.0, 200.0], workers=2)
    files["index/000000000/000000000001_worker_1.json"] = b"{"
    files["events/000000000001/000000000001_worker_0.tfevents"] = b""
    network = network_of(uploads_of(files))
    assert fires_of(network) == [(HIGH_LOSS, "all-workers", 200.0)]
    item = debug_item(network)
    assert (item.cursors["step"], item.counters["bad_objects"], item.watermark_s) == (2, 1, START + 20.0)


def test_missing_event_file_is_counted_and_the_run_goes_on() -> None:
    uploads = uploads_of(run_files([200.0, 200.0]))
    network = network_of(each for each in uploads if "events/000000000000/" not in each.key)
    assert debug_item(network).counters["bad_tensors"] >= 1
    assert "is gone" in reasons(network, "bad_tensors")[0]
    assert debug_item(network).cursors["step"] == 1


def test_step_is_judged_once_an_unavailable_store_is_back() -> None:
    uploads = uploads_of(run_files([1.0, 200.0]))
    network = network_of(uploads[:-1])
    network.put(uploads[-1])
    network.world.faults.schedule("ReadableObjects.get", Fault.FAIL_BEFORE, nth=2)  # a rule asks for the step before
    network.announce(uploads[-1], uploads[-1].at)
    network.run_until(uploads[-1].at + 1.0, batch_s=0.0)
    assert fires_of(network) == []
    network.run_until(uploads[-1].at + 1_000.0, batch_s=0.0)
    assert fires_of(network) == [(HIGH_LOSS, "all-workers", 200.0)]
    assert rows_of(network)[f"{SAME_WEIGHTS}#all-workers"].status is Status.OK
    assert rows_of(network)[f"{HIGH_LOSS}#all-workers"].status is Status.FIRED


def test_steps_a_worker_skipped_are_judged_with_a_later_one() -> None:
    uploads = uploads_of(run_files([1.0, 200.0, 1.0, 1.0], workers=3))
    skipped = {index_key(1, "worker_2"), index_key(2, "worker_2")}
    network = network_of(each for each in uploads if each.key not in skipped)
    assert debug_item(network).cursors["step"] == 3
    assert fires_of(network) == [(HIGH_LOSS, "all-workers", 200.0)]


def test_index_after_its_judged_step_is_counted_as_late() -> None:
    uploads = uploads_of(run_files([1.0, 1.0, 1.0], workers=2))
    late = next(each for each in uploads if each.key == index_key(1, "worker_1"))
    network = network_of(each for each in uploads if each is not late)
    arrive(network, late)
    assert debug_item(network).counters == {"late": 1}


def test_silent_worker_lets_half_of_a_thousand_steps_be_judged() -> None:
    writer = HookWriter(workers=2)
    for worker in ("worker_0", "worker_1"):
        writer.collections({"losses": (["loss"], [])}, worker=worker)
    for step in range(1_002):
        writer.step(step, {"loss": 1.0}, at=START + step)
    writer.step(0, {"loss": 1.0}, worker="worker_1", at=START)
    uploads = uploads_of(writer.files)
    network = Network(families=FAMILIES)
    for upload in uploads:
        network.put(replace(upload, at=START + 1.0))
    network.announce(uploads[-1], START + 2.0)
    network.run_until(START + 3.0, batch_s=0.0)
    item = debug_item(network)
    assert item.cursors["step"] == 500
    assert item.counters["steps_given_up"] == 500


def test_missing_collections_file_puts_every_rule_in_error() -> None:
    network = network_of([Upload(START + 1.0, f"{FOLDER}training_job_end.ts", b"")])
    close(network)
    rows = rows_of(network)
    for rule in (HIGH_LOSS, SAME_WEIGHTS):
        assert (rows[rule].status, rows[rule].finding.reason) == (Status.ERROR, NO_DATA)


def test_unreadable_collections_put_every_rule_in_error() -> None:
    files = {**run_files([1.0, 200.0]), "collections/000000000/worker_0_collections.json": b"{"}
    network = network_of(uploads_of(files))
    close(network)
    assert rows_of(network)[HIGH_LOSS].status is Status.ERROR
    assert debug_item(network).counters["bad_objects"] == 1


def test_rules_without_their_tensors_say_what_to_record() -> None:
    writer = HookWriter().collections({"losses": ([], [])}).step(0, {"other": 1.0}, at=START)
    network = network_of(uploads_of(writer.files))
    close(network)
    row = rows_of(network)[HIGH_LOSS]
    assert row.status is Status.NOT_APPLICABLE
    assert "record the collection losses" in row.finding.reason


def test_end_mark_judges_a_step_that_lacks_a_worker() -> None:
    uploads = uploads_of(run_files([1.0, 200.0], workers=2, ended=True))
    network = network_of(each for each in uploads if each.key != index_key(1, "worker_1"))
    assert fires_of(network) == [(HIGH_LOSS, "all-workers", 200.0)]
    assert network.job().closing is False


def test_impossible_step_time_falls_back_to_s3() -> None:
    writer = HookWriter().collections({"losses": (["loss"], [])})
    for step, at in enumerate([float("nan"), -1.0, 1e300, START + 30.0]):
        writer.step(step, {"loss": 1.0}, at=at)
    network = network_of(uploads_of(writer.files))
    assert debug_item(network).watermark_s == pytest.approx(START + 30.5, abs=10.0)


def test_only_own_objects_of_a_job_name_are_judged() -> None:
    uploads = uploads_of(run_files([1.0]))
    network = network_of(uploads)
    for upload in uploads_of(run_files([900.0, 900.0])):
        arrive(network, replace(upload, key=f"elsewhere/{upload.key}"))
    assert fires_of(network) == []
    assert debug_item(network).cursors["step"] == 0
