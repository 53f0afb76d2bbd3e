"""Debug-output from objects to rows, fires and alerts, on the in-memory world."""

from tests.families.training.runs import arrive, debug_item, fires_of, network_of, rows_of, run_files, uploads_of
from tests.families.training.step_rules import HIGH_LOSS, SAME_WEIGHTS
from trainguard.records import Status


def test_given_a_high_loss_when_its_step_is_complete_then_the_rule_fires_once_and_its_rows_say_so() -> None:
    network = network_of(uploads_of(run_files([1.0, 2.0, 200.0, 300.0], workers=3)))
    assert fires_of(network) == [(HIGH_LOSS, "all-workers", 200.0)]
    row = rows_of(network)[f"{HIGH_LOSS}#all-workers"]
    assert (row.status, row.finding.reason, row.worst) == (Status.FIRED, "Step 2: the loss is 200.", "loss")
    assert debug_item(network).cursors == {"step": 3, "newest": 3}
    network.tick()
    assert rows_of(network)[HIGH_LOSS].status is Status.FIRED


def test_given_a_condition_that_is_over_when_the_next_step_comes_then_the_rule_clears_and_may_fire_anew() -> None:
    network = network_of(uploads_of(run_files([200.0, 1.0])))
    assert rows_of(network)[f"{HIGH_LOSS}#all-workers"].status is Status.OK
    network.tick()
    uploads = uploads_of(run_files([200.0, 1.0, 500.0]))
    for upload in uploads[-2:]:
        arrive(network, upload)
    assert [value for _, _, value in fires_of(network)] == [200.0, 500.0]


def test_given_history_when_a_rule_asks_for_an_earlier_value_then_it_is_read_again_from_the_bucket() -> None:
    files = run_files([1.0] * 4, weights={2: 7.0, 3: 7.0})
    network = network_of(uploads_of(files))
    row = rows_of(network)[f"{SAME_WEIGHTS}#all-workers"]
    assert (row.status, row.finding.reason) == (Status.FIRED, "Step 3: the weight is that of step 2.")


def test_given_a_step_that_a_worker_has_not_written_when_it_waits_then_no_rule_sees_it() -> None:
    uploads = uploads_of(run_files([1.0, 200.0], workers=3))
    network = network_of(upload for upload in uploads if not upload.key.endswith("000000000001_worker_2.json"))
    assert fires_of(network) == []
    item = debug_item(network)
    assert item.cursors == {"step": 0, "newest": 1}
    assert list(item.pending) == [uploads[-3].key]


def test_given_all_messages_of_a_step_lost_when_a_later_step_comes_then_no_step_is_missing() -> None:
    uploads = uploads_of(run_files([1.0, 200.0, 1.0]))
    network = network_of(uploads[:3])
    for upload in uploads[3:5]:
        network.put(upload)  # nobody announces step 1
    for upload in uploads[5:]:
        arrive(network, upload)
    assert fires_of(network) == [(HIGH_LOSS, "all-workers", 200.0)]
    assert debug_item(network).counters == {}


def test_given_a_message_that_comes_again_when_it_is_delivered_then_nothing_is_applied_twice() -> None:
    uploads = uploads_of(run_files([1.0, 200.0]))
    network = network_of(uploads)
    before = debug_item(network).state
    for upload in uploads:
        arrive(network, upload)
    assert debug_item(network).state == before
    assert len(fires_of(network)) == 1
