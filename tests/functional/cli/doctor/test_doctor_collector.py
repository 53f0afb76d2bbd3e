"""What `trainguard doctor --job` says about the collector, by status objects that the collector itself wrote."""

from typing import Any

import pytest

from tests.support.memory import MemoryWorld
from trainguard.cli.doctor.job_statuses import (
    COLLECTOR_SILENT_S,
    MOST_READ,
    CollectorStatus,
    grade_collector,
    read_statuses,
)
from trainguard.cli.doctor.site import CheckLevel, CheckResult
from trainguard.core.layout import ProfileRoot
from trainguard_collector.ending import status_object
from trainguard_collector.layout import status_key
from trainguard_collector.names import Identity
from trainguard_collector.settings import Settings

AT = 1_800_000_000.0
ROOT = ProfileRoot("runs/", "bert")
NOTHING_LOST = {
    "gpus": 8,
    "absent": {},
    "sent_minutes": 9,
    "dropped_minutes": 0,
    "lost_snapshots": 0,
    "missed_samples": 0,
    "failed_uploads": 0,
    "errors": {},
}


def status(node: str = "algo-1", at: float = AT - 30.0, **more: Any) -> tuple[str, bytes]:
    body = status_object(Settings("s3://b/runs", Identity("bert", node)), AT - 600.0, at, **{**NOTHING_LOST, **more})
    return f"runs/{status_key('bert', node)}", body


def graded(*objects: tuple[str, bytes], final: bool = False) -> list[CheckResult]:
    world = MemoryWorld()
    for key, body in objects:
        world.objects.put("b", key, body, "application/json")
    return list(grade_collector(read_statuses(world.objects, "b", ROOT, CollectorStatus), now=AT, final=final))


def test_no_status_means_no_collector_at_work() -> None:
    (said,) = graded(("runs/bert/profiler-output/system/x.json", b""), ("runs/bert2/collector/a.status.json", b""))
    assert (said.level, said.found) == (CheckLevel.OK, "no collector writes the profile")


def test_healthy_nodes_are_counted_and_absent_parts_named() -> None:
    absent = {"gpu0.Utilization": "not measured by NVML under MIG"}
    well, missing = graded(status(), status("algo-2", absent=absent))
    assert (well.level, well.found) == (CheckLevel.OK, "2 nodes, 16 GPUs, every 500 ms")
    assert (missing.level, missing.found) == (
        CheckLevel.OK,
        "not measured: gpu0.Utilization: not measured by NVML under MIG",
    )


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"lost_gpus": ["gpu3", "gpu5"]}, "GPUs that the driver has lost, or does not answer for: algo-1 gpu3, gpu5"),
        ({"dropped_minutes": 3}, "3 minutes dropped, as the spool was full: algo-1 3"),
        ({"dropped_objects": 2}, "2 recordings dropped, as the spool was full: algo-1 2"),
        ({"lost_snapshots": 1_200}, "1,200 snapshots lost, as the disk took none: algo-1 1,200"),
        ({"missed_samples": 2}, "2 samples missed, as the one before took too long: algo-1 2"),
        ({"failed_uploads": 4}, "4 uploads failed and tried again: algo-1 4"),
        ({"errors": {"upload": "AccessDenied\nat once"}}, "its newest errors: upload: AccessDenied at once"),
    ],
)
def test_loss_is_reported_with_its_node(more: dict[str, Any], expected: str) -> None:
    (said,) = graded(status(**more))
    assert (said.level, said.found) == (CheckLevel.WARN, expected)
    assert said.advice


@pytest.mark.parametrize(
    ("at", "more", "final", "level"),
    [
        (AT - COLLECTOR_SILENT_S, {}, False, CheckLevel.OK),
        (AT - COLLECTOR_SILENT_S - 1.0, {}, False, CheckLevel.FAIL),
        (AT - COLLECTOR_SILENT_S - 1.0, {}, True, CheckLevel.OK),
        (AT - COLLECTOR_SILENT_S - 1.0, {"outcome": "Completed"}, False, CheckLevel.OK),
    ],
)
def test_silent_node_is_at_fault_only_while_the_job_runs(
    at: float, more: dict[str, Any], final: bool, level: CheckLevel
) -> None:
    (said,) = graded(status(at=at, **more), final=final)
    assert said.level is level


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"\xff", b'{"node": 3, "updated_at": 1}'])
def test_invalid_status_leaves_the_others_judged(body: bytes) -> None:
    said = graded(status(), ("runs/bert/collector/algo-2.status.json", body))
    assert [each.level for each in said] == [CheckLevel.WARN]
    assert said[0].found.startswith("not read: algo-2: ")


def test_first_of_a_thousand_nodes_are_read_and_all_counted() -> None:
    (said,) = graded(*(status(f"node-{number:04d}") for number in range(1_000)))
    assert said.found.startswith(f"1,000 nodes, {8 * MOST_READ:,} GPUs")
