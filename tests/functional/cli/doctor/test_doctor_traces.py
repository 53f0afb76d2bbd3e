"""What `trainguard doctor --job` says about a job's kernel traces."""

from tests.support.memory import MemoryWorld
from trainguard.cli.doctor.job_case import grade_traces, look_at_traces
from trainguard.cli.doctor.site import CheckLevel
from trainguard.core.layout import ProfileRoot

ROOT = ProfileRoot("runs/", "bert")


def graded(*names: str, met: tuple[str, ...] = ()) -> list[tuple[CheckLevel, str]]:
    world = MemoryWorld()
    for name in names:
        world.objects.put("b", f"{ROOT.folder}{name}", b"", "")
    seen = look_at_traces(world.objects, "b", ROOT)
    return [
        (each.level, each.found) for each in grade_traces(seen, {(f"{ROOT.folder}{each}", False) for each in met}, ROOT)
    ]


def test_no_trace_gives_no_metrics_and_no_results() -> None:
    said = graded("profiler-output/system/incremental/1.json", "rule-output/copy.pt.trace.json", "model.tar.gz")
    assert said == [(CheckLevel.OK, "no kernel traces below runs/bert/")]


def test_trace_folder_unknown_to_the_evaluator_is_named() -> None:
    written = (
        "rank0/n.pt.trace.json",
        "rank1/n.pt.trace.json",
        "logs/n.xplane.pb",
        "profiler-output/x/z.pt.trace.json",
    )
    assert graded(*written, met=("", "profiler-output/x/")) == [
        (CheckLevel.OK, "4 kernel traces in 3 folders: runs/bert/, runs/bert/logs/, runs/bert/profiler-output/x/"),
        (CheckLevel.WARN, "the evaluator does not know 1 folder with kernel traces: runs/bert/logs/"),
    ]


def test_snapshots_are_named_beside_traces_and_unread_ones() -> None:
    reason = "as the stack takes memory snapshots by lower-case names in .pickle, .pkl or memory_snapshot.json"
    names = ("profiler-output/rank0_memory_snapshot.pickle", "dump_snapshot.pickle.gz", "rule-output/snapshot.pickle")
    assert graded(*names, "n.pt.trace.json", "vocabulary.pickle", "mem/Snapshot.pickle", "memory.json", met=("",)) == [
        (CheckLevel.OK, "1 kernel trace in 1 folder: runs/bert/"),
        (CheckLevel.OK, "2 memory snapshots in 2 folders: runs/bert/, runs/bert/profiler-output/"),
        (
            CheckLevel.WARN,
            "the evaluator does not know 2 folders with memory snapshots: runs/bert/, runs/bert/profiler-output/",
        ),
        (
            CheckLevel.WARN,
            f"2 files not read, {reason}: runs/bert/mem/Snapshot.pickle, runs/bert/memory.json",
        ),
    ]


def test_unread_files_have_their_reasons() -> None:
    said = graded("output/db.sqlite", "trial-2/checkpoints/n.pt.trace.json", "a/" * 13 + "n.pt.trace.json")
    assert [level for level, _ in said] == [CheckLevel.WARN] * 3
    reasons = "\n".join(found for _, found in said)
    for reason in ("only databases below kernel-traces/", "names the job trial-2", "more than 12 folders"):
        assert reason in reasons
