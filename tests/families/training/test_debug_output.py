"""Debug-output from objects to rows, fires and alerts, on the in-memory world."""

from tests.families.training.runs import arrive, debug_item, fires_of, network_of, rows_of, run_files, uploads_of
from tests.families.training.step_rules import HIGH_LOSS, SAME_WEIGHTS
from trainguard.core.records import Status


def test_high_loss_of_a_complete_step_fires_once() -> None:
    network = network_of(uploads_of(run_files([1.0, 2.0, 200.0, 300.0], workers=3)))
    assert fires_of(network) == [(HIGH_LOSS, "all-workers", 200.0)]
    row = rows_of(network)[f"{HIGH_LOSS}#all-workers"]
    assert (row.status, row.finding.reason, row.worst) == (Status.FIRED, "Step 2: the loss is 200.", "loss")
    assert debug_item(network).cursors == {"step": 3, "newest": 3}
    network.run_scheduler()
    assert rows_of(network)[HIGH_LOSS].status is Status.FIRED


def test_cleared_condition_may_fire_again() -> None:
    network = network_of(uploads_of(run_files([200.0, 1.0])))
    assert rows_of(network)[f"{HIGH_LOSS}#all-workers"].status is Status.OK
    network.run_scheduler()
    uploads = uploads_of(run_files([200.0, 1.0, 500.0]))
    for upload in uploads[-2:]:
        arrive(network, upload)
    assert [value for _, _, value in fires_of(network)] == [200.0, 500.0]


def test_earlier_values_are_read_again_from_the_bucket() -> None:
    files = run_files([1.0] * 4, weights={2: 7.0, 3: 7.0})
    network = network_of(uploads_of(files))
    row = rows_of(network)[f"{SAME_WEIGHTS}#all-workers"]
    assert (row.status, row.finding.reason) == (Status.FIRED, "Step 3: the weight is that of step 2.")


def test_step_waits_for_a_worker_that_has_not_written() -> None:
    uploads = uploads_of(run_files([1.0, 200.0], workers=3))
    network = network_of(upload for upload in uploads if not upload.key.endswith("000000000001_worker_2.json"))
    assert fires_of(network) == []
    item = debug_item(network)
    assert item.cursors == {"step": 0, "newest": 1}
    assert list(item.pending) == [uploads[-3].key]


def test_steps_with_lost_messages_are_found_later() -> None:
    uploads = uploads_of(run_files([1.0, 200.0, 1.0]))
    network = network_of(uploads[:3])
    for upload in uploads[3:5]:
        network.put(upload)  # nobody announces step 1
    for upload in uploads[5:]:
        arrive(network, upload)
    assert fires_of(network) == [(HIGH_LOSS, "all-workers", 200.0)]
    assert debug_item(network).counters == {}


def test_redelivered_message_is_applied_once() -> None:
    uploads = uploads_of(run_files([1.0, 200.0]))
    network = network_of(uploads)
    before = debug_item(network).state
    for upload in uploads:
        arrive(network, upload)
    assert debug_item(network).state == before
    assert len(fires_of(network)) == 1
