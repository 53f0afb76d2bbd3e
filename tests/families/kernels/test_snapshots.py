"""Memory snapshots of a job: beside its traces or alone, replaced, damaged, late and repeated."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from gzip import compress
from pathlib import Path
from typing import Any

import pytest

from tests.families.kernels.test_captures_faults import verdict_of
from tests.families.kernels.test_captures_local import folder_of, rows_of, said
from tests.support.captures import FIRST, HELD_UP, ROOT, Live, capture
from tests.support.memory_snapshots import MIB, Allocator, Training, as_json, pickled
from tests.support.small_job import BUCKET, Upload
from trainguard.core.records import RuleRow, Status
from trainguard.kernels.rules.registry import MEMORY_RULES
from trainguard.kernels.verdict import SnapshotVerdict
from trainguard.local.api import analyze

MINUTE_S = 60.0
END = FIRST + 1_800.0
MEMORY = [rule.name.removeprefix("kernels/") for rule in MEMORY_RULES]
HOSTILE = b"\x80\x04cos\nsystem\n(S'true'\ntR."


def trained(*, fails: bool = False, leak: int = 0, form: Callable[[Any], bytes] = pickled) -> bytes:
    training = Training(Allocator(limit=400 * MIB) if fails else Allocator(), logits=260 if fails else 0, leak=leak)
    training.setup()
    if fails:
        with pytest.raises(MemoryError):
            training.run(3)
    else:
        training.run(12)
    return form(training.allocator.snapshot())


HEALTHY, FAILED, LEAKS = trained(), trained(fails=True), trained(leak=3)


def snapshot(
    rank: int, at: float, body: bytes, folder: str = "checkpoints/memory/", ending: str = "snapshot.pickle"
) -> Upload:
    return Upload(at, f"{ROOT.folder}{folder}rank{rank}_memory_{ending}", body)


def judged(uploads: Sequence[Upload], until: float = END) -> Live:
    live = Live()
    live.write(uploads)
    live.until(until)
    return live


def of_memory(live: Live) -> SnapshotVerdict:
    found = verdict_of(live).snapshots
    assert found is not None
    return found


def document(live: Live) -> Mapping[str, list[dict[str, object]]]:
    return dict(json.loads(live.world.objects.get(BUCKET, f"{ROOT.report}kernels.json", 1 << 26)))


def fired(rows: Mapping[str, RuleRow]) -> set[str]:
    return {name for name, row in rows.items() if row.status is Status.FIRED}


def test_snapshots_and_traces_stand_beside_each_other() -> None:
    beside = [snapshot(1, FIRST + 90.0, FAILED), snapshot(0, FIRST + 91.0, HEALTHY)]
    live = judged([*capture(delay_us=HELD_UP), *beside])
    rows = live.rows()
    assert {"LateRank", "GpuMemoryRanOut"} <= fired(rows)
    failed = rows["GpuMemoryRanOut"].finding
    assert failed.reason.startswith("On rank 1: An allocation of 272.6 MB failed on GPU 0")
    assert {"kernels/LateRank", "kernels/GpuMemoryRanOut"} <= set(live.fires())
    assert rows["GpuMemoryGrows"].status is Status.OK
    assert "in 1 memory snapshot" in rows["GpuMemoryGrows"].finding.reason
    found = document(live)
    assert (len(found["ranks"]), [each["rank"] for each in found["snapshots"]]) == (4, [1, 0])
    page = live.world.objects.get(BUCKET, f"{ROOT.report}kernels.html", 1 << 24).decode()
    assert 'id="finding-LateRank"' in page
    assert 'id="finding-GpuMemoryRanOut"' in page
    assert 'id="timeline"' in page


@pytest.mark.parametrize("folder", ["kernel-traces/", "output/logs/", "checkpoints/step-10/", "tensorboard-output/m/"])
def test_snapshots_alone_fire_and_rules_on_time_wait(folder: str) -> None:
    known = Upload(FIRST - 300.0, f"{ROOT.folder}checkpoints/log.csv", b"step,loss\n")
    live = judged([known, snapshot(3, FIRST, LEAKS, folder)])
    rows = live.rows()
    assert rows["GpuMemoryGrows"].status is Status.FIRED
    assert "On rank 3" in rows["GpuMemoryGrows"].finding.reason
    assert {rows[name].status for name in ("GpuBusyLow", "GpuMemoryFull", "LateRank")} == {Status.WAITING_FOR_DATA}
    assert (document(live)["ranks"], live.record.pending) == ([], {})


@pytest.mark.parametrize("folder", ["kernel-traces/", "checkpoints/step-10/"])
def test_snapshot_in_json_is_judged_as_a_pickle(folder: str) -> None:
    known = Upload(FIRST - 300.0, f"{ROOT.folder}checkpoints/log.csv", b"step,loss\n")
    live = judged([known, snapshot(3, FIRST, trained(leak=3, form=as_json), folder, "snapshot.json")])
    assert "GpuMemoryGrows" in fired(live.rows())


@pytest.mark.parametrize("ending", ["timeline.json", "timeline.raw.json.gz"])
def test_timeline_is_shown_and_gives_no_all_clear(ending: str) -> None:
    events = [[1_795_000_000_000_000_000 + 1_000 * step, 2, 300, 4] for step in range(9)]
    times = [at // 1_000 for at, *_ in events]
    rows = [[0, 0, 0, 0, 0, 300 * (step + 1), 0, 0, 0] for step in range(9)]
    body = json.dumps(events if "raw" in ending else [times, rows]).encode()
    timeline = snapshot(0, FIRST + 1.0, compress(body) if ending.endswith(".gz") else body, ending=ending)
    live = judged([*capture(), timeline])
    assert live.rows()["GpuMemoryGrows"].status is not Status.OK
    (shown,) = document(live)["snapshots"]
    assert (shown["rank"], of_memory(live).unread) == (0, 0)
    live = judged([*capture(), timeline, snapshot(0, FIRST, FAILED)])
    assert "GpuMemoryRanOut" in fired(live.rows())
    assert of_memory(live).files == 2


def test_newer_snapshot_of_a_rank_replaces_the_older() -> None:
    live = judged([*capture(), snapshot(1, FIRST, FAILED), snapshot(0, FIRST, HEALTHY)])
    assert "GpuMemoryRanOut" in fired(live.rows())
    live.write([snapshot(1, live.net.now, HEALTHY, "checkpoints/memory/iteration_20/")])
    live.until(live.net.now + 1_200.0)
    assert live.rows()["GpuMemoryRanOut"].status is Status.OK
    assert (of_memory(live).files, of_memory(live).replaced) == (2, 1)
    assert ("cleared", "kernels/GpuMemoryRanOut") in live.alerts()
    assert live.machine.digested.count("rank0_memory_snapshot.pickle") == 1
    assert live.record.cursors["captures"] == 1


def test_snapshots_stay_with_a_newer_capture_of_traces() -> None:
    live = judged([*capture(), snapshot(1, FIRST + 60.0, FAILED)])
    live.write(capture(at=live.net.now, delay_us=HELD_UP))
    live.until(live.net.now + 1_200.0)
    assert {"LateRank", "GpuMemoryRanOut"} <= fired(live.rows())
    assert [each["rank"] for each in document(live)["snapshots"]] == [1]
    assert live.fires().count("kernels/GpuMemoryRanOut") == 1


def test_traces_that_come_behind_snapshots_are_judged_too() -> None:
    live = judged([snapshot(1, FIRST, FAILED)])
    live.write(capture(at=live.net.now, delay_us=HELD_UP))
    live.until(live.net.now + 1_200.0)
    assert {"LateRank", "GpuMemoryRanOut"} <= fired(live.rows())


def test_traces_that_cannot_be_read_do_not_hide_snapshots() -> None:
    live = judged(capture(delay_us=HELD_UP))
    later = live.net.now
    live.write([*(replace(each, body=b"{") for each in capture(at=later)), snapshot(0, later, FAILED)])
    live.until(later + 1_200.0)
    assert {"LateRank", "GpuMemoryRanOut"} <= fired(live.rows())


@pytest.mark.parametrize("body", [HOSTILE, HEALTHY[:500], b"", b'{"traceEvents": []}', b"\x80\x04}\x94."])
def test_bad_snapshot_is_named_and_costs_only_itself(body: bytes) -> None:
    bad = snapshot(1, FIRST + 60.0, body)
    live = judged([*capture(delay_us=HELD_UP), bad, snapshot(0, FIRST, LEAKS)])
    found = of_memory(live)
    assert (found.files, found.unread, list(found.unread_why)) == (2, 1, [bad.key.removeprefix(ROOT.folder)])
    assert {"LateRank", "GpuMemoryGrows"} <= fired(live.rows())
    assert live.record.counters["bad_snapshots"] == 1
    silent = live.rows()["GpuMemoryRanOut"]
    assert silent.status is Status.OK
    assert "1 memory snapshot could not be read; checkpoints/memory/rank1" in silent.finding.reason


def test_snapshots_that_cannot_be_read_give_no_all_clear() -> None:
    live = judged([*capture(), snapshot(0, FIRST, HOSTILE)])
    row = live.rows()["GpuMemoryRanOut"]
    assert row.status is Status.WARMING_UP
    assert "1 memory snapshot could not be read" in row.finding.reason
    assert live.rows()["GpuBusyLow"].status is not Status.WARMING_UP


def test_snapshots_written_every_minute_do_not_hold_traces_up() -> None:
    live = Live()
    live.write(capture(delay_us=HELD_UP))
    for minute in range(20):
        live.write([snapshot(0, FIRST + MINUTE_S * minute, HEALTHY, f"memory/step-{minute}/")])
    live.until(FIRST + 900.0)
    assert "LateRank" in fired(live.rows())
    live.until(END + 900.0)
    assert (of_memory(live).files, of_memory(live).replaced) == (1, 19)
    assert live.record.pending == {}


OBJECTS = [
    *capture(),
    *capture(at=FIRST + 500.0, delay_us=HELD_UP),
    snapshot(0, FIRST + 20.0, FAILED),
    snapshot(0, FIRST + 400.0, HEALTHY, "checkpoints/memory/iteration_2/"),
    snapshot(1, FIRST + 420.0, LEAKS, "kernel-traces/"),
    snapshot(2, FIRST + 30.0, HOSTILE),
]


def outcome(live: Live) -> object:
    """Return what all rows say, and what is stored of snapshots."""
    rows = {name: (row.status, row.finding.finding_kind, row.finding.facts) for name, row in live.rows().items()}
    return rows, of_memory(live), live.record.pending


@pytest.mark.parametrize("seed", range(1, 5))
def test_any_order_of_messages_gives_the_same_rows(seed: int) -> None:
    chance = random.Random(seed)
    live = Live()
    for upload in OBJECTS:
        live.net.put(upload)
    messages = [(each, chance.uniform(0.0, 900.0)) for each in OBJECTS for _ in range(chance.choice((1, 2)))]
    chance.shuffle(messages)
    for upload, late_s in messages:
        live.net.announce(upload, max(upload.at, FIRST + late_s) + 1.0)
    live.until(END + 900.0)
    assert outcome(live) == outcome(judged(OBJECTS, END + 900.0))
    assert {"LateRank", "GpuMemoryGrows"} <= fired(live.rows())
    assert (of_memory(live).files, of_memory(live).replaced, of_memory(live).unread) == (3, 1, 1)
    assert live.fires().count("kernels/GpuMemoryGrows") == 1


@pytest.mark.parametrize("traces", [capture(), []], ids=["beside traces", "alone"])
def test_a_folder_has_the_rows_of_the_stack_on_memory(tmp_path: Path, traces: list[Upload]) -> None:
    uploads = [*traces, snapshot(0, FIRST + 2.0, LEAKS), snapshot(1, FIRST + 3.0, HOSTILE)]
    live = judged(uploads)
    folder = folder_of(tmp_path, uploads)
    here, deployed = said(rows_of(folder)), said(live.rows())
    assert {name: here[name] for name in MEMORY} == {name: deployed[name] for name in MEMORY}
    report = analyze(folder)
    kernels = report.document.kernels
    assert kernels is not None
    assert "In 1 memory snapshot: GpuMemoryGrows." in kernels.sentence
    assert any("1 of 2 memory snapshots could not be read" in note for note in report.notes)
