"""Every kind of bad input: its node goes on, its neighbours too, and its count and name are where a person looks."""

import gzip
import json

import pytest

from tests.support.delivery import Network
from tests.support.small_job import JOB, START, Upload, uploads
from trainguard.core.records import RuleRow, Status, StreamKey
from trainguard.engine.messages import Message

UPLOADS = uploads()
NODES = {
    node: [upload for upload in UPLOADS if "system/incremental" in upload.key and node in upload.key]
    for node in ("algo-1", "algo-2")
}
AROUND = [*NODES["algo-1"][:9], *NODES["algo-2"][:9]]
FRAMEWORK = [upload for upload in UPLOADS if "pevents" in upload.key and "70-algo-1" in upload.key]
VICTIM = NODES["algo-1"][5]
MINUTE = START + 300


def line(**changed: object) -> bytes:
    fields = {"Type": "gpu", "Name": "gpu0", "Dimension": "GPUUtilization", "Value": 50.0, "NodeId": "algo-1"}
    return json.dumps({**fields, "Timestamp": MINUTE + 1.0, **changed}).encode() + b"\n"


def play(bad: Upload, among: list[Upload]) -> Network:
    """Deliver both nodes' minutes with one object replaced."""
    network = Network()
    for upload in sorted(among, key=lambda each: (each.at, each.key)):
        chosen = bad if upload.key == bad.key else upload
        network.put(chosen)
        network.announce(chosen, upload.at)
        network.run_until(upload.at, batch_s=0.0)
    return network


def row(network: Network, target: str) -> RuleRow:
    return next(row for row in network.world.rows.of_job(JOB) if row.target == target)


CASES = {
    "empty": (b"", "empty_objects"),
    "truncated": (VICTIM.body[:-30], "bad_lines"),
    "not UTF-8": (VICTIM.body + b'{"Name":"\xff\xfe"}\n', "bad_lines"),
    "binary": (bytes(range(256)) * 9, "bad_lines"),
    "broken gzip": (b"\x1f\x8b\x08 rubbish", "bad_objects"),
    "gzip cut short": (gzip.compress(VICTIM.body)[:-40], "truncated_objects"),
    "wrong node": (VICTIM.body + line(NodeId="algo-7"), "wrong_node"),
    "NaN": (VICTIM.body + line(Value=float("nan")), "bad_lines"),
    "negative": (VICTIM.body + line(Value=-1.0), "values_out_of_range"),
    "over 100": (VICTIM.body + line(Value=180.0), "values_out_of_range"),
    "unknown dimension": (VICTIM.body + line(Dimension="FanSpeed"), "unknown_dimensions"),
    "another minute": (VICTIM.body + line(Timestamp=MINUTE + 4_000.0), "times_outside_minute"),
    "a hundred GPUs": (VICTIM.body + b"".join(line(Name=f"gpu{each}") for each in range(100)), "too_many_series"),
    "lines without end": (b"{}\n" * 200_000, "bad_lines"),
    "a grid without end": (
        b"".join(
            line(
                Name=f"cpu{each}",
                Dimension=("CPUUtilization", "I/OWaitPercentage")[each % 2],
                Timestamp=MINUTE + each / 40,
            )
            for each in range(2_048)
        ),
        "bad_objects",
    ),
}


@pytest.mark.parametrize(("body", "counter"), CASES.values(), ids=CASES.keys())
def test_bad_object_is_counted_named_and_skipped(body: bytes, counter: str) -> None:
    bad = Upload(VICTIM.at, VICTIM.key, body)
    network = play(bad, AROUND)
    victim = network.node(StreamKey(JOB, "algo-1", "system"))
    neighbour = network.node(StreamKey(JOB, "algo-2", "system"))
    assert victim.cursors["minute"] == neighbour.cursors["minute"] == START + 8 * 60
    assert victim.counters[counter] > 0
    assert counter not in neighbour.counters
    shown = row(network, "LowGPUUtilization#algo-1")
    assert shown.counters[counter] == victim.counters[counter]
    assert bad.key in shown.finding.reason
    said = "could not be read" if counter == "bad_objects" else counter
    assert said in shown.finding.reason
    noted = next(entry for entry in network.world.journal.entries if entry.what == counter)
    assert noted.where["key"] == bad.key
    assert network.queue == []


def test_bad_object_does_not_change_the_verdict() -> None:
    network = play(Upload(VICTIM.at, VICTIM.key, b""), [*NODES["algo-1"], *NODES["algo-2"]])
    assert row(network, "LowGPUUtilization#algo-1").status is Status.FIRED
    assert row(network, "LowGPUUtilization#algo-2").status is Status.OK


@pytest.mark.parametrize("body", [b"", b"[{]", b"\xff\xfe\x00\x01", FRAMEWORK[2].body[:-25], b"{}", b"null"])
def test_bad_framework_object_is_counted_named_and_skipped(body: bytes) -> None:
    bad = Upload(FRAMEWORK[2].at, FRAMEWORK[2].key, body)
    network = play(bad, FRAMEWORK)
    record = network.node(StreamKey(JOB, "algo-1", "framework"))
    assert record.cursors["70/pythontimeline"] > int(FRAMEWORK[2].key.rsplit("/", 1)[1].split("_")[0])
    assert set(record.counters) & {"bad_events", "bad_objects", "empty_objects"}
    assert any(entry.where.get("key") == bad.key for entry in network.world.journal.entries)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("", "malformed_messages"),
        ('{"source":"aws.ec2"}', "malformed_messages"),
        (
            json.dumps({"source": "aws.s3", "time": "2026-11-21T08:00:00Z", "detail": {"bucket": {"name": "b"}}}),
            "malformed_messages",
        ),
    ],
)
def test_malformed_message_is_acknowledged_and_counted(body: str, what: str) -> None:
    network = Network()
    outcome = network.batch.process([Message("m", body)])
    assert (outcome.failed, outcome.refused) == ((), ("m",))
    assert network.world.journal.totals[what] == 1


def test_foreign_key_among_good_objects_is_refused_alone() -> None:
    network = Network()
    foreign = Upload(0.0, f"{JOB}/rule-output/ProfilerReport-1/profiler-output/{VICTIM.key.split('/', 2)[2]}", b"")
    for upload in (foreign, VICTIM):
        network.put(upload)
        network.announce(upload, 0.0)
    outcome = network.batch.process([message for _, _, message in network.queue])
    assert outcome.refused == ("m1",)
    assert outcome.nodes == 1
    (noted,) = [entry for entry in network.world.journal.entries if entry.what == "foreign_keys"]
    assert "rule-output" in str(noted.where["reason"])
