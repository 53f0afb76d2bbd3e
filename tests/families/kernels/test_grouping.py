"""Which keys are kernel traces, and which of them belong to one capture."""

from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.faults import Faults
from tests.support.memory import MemoryProfileObjects
from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import ListedObject
from trainguard.kernels.captures.keys import (
    MOST_LISTED,
    MOST_TRACES,
    WINDOW_S,
    Capture,
    captures_of,
    listed_folder,
    match_below,
    match_key,
)

ROOT = ProfileRoot("runs/", "job-1")
FOLDER = "runs/job-1/kernel-traces/"
AT = 1_795_248_000.0


class Watched(MemoryProfileObjects):
    """Counts the objects that are looked at in lists."""

    def __init__(self) -> None:
        super().__init__(faults=Faults())
        self.looked_at = 0

    def list(self, bucket: str, prefix: str, start_after: str) -> Iterator[ListedObject]:
        for each in super().list(bucket, prefix, start_after):
            self.looked_at += 1
            yield each


class Endless(Watched):
    """A folder without an end."""

    def list(self, bucket: str, prefix: str, start_after: str) -> Iterator[ListedObject]:
        del bucket, start_after
        return (ListedObject(f"{prefix}{number:09d}", AT, 1) for number in count())


def listed(*named: tuple[str, float], late_s: float = 0.0) -> list[ListedObject]:
    """Return traces by writer and time, uploaded ``late_s`` after they were written."""
    return [
        ListedObject(f"{FOLDER}{who}.{round(at * 1_000)}.pt.trace.json.gz", at + late_s, 10, f"{who}{at}")
        for who, at in named
    ]


def grouped(objects: list[ListedObject]) -> list[list[str]]:
    """Return the writers of each capture."""
    return [[trace.writer for trace in each.traces] for each in captures_of(ROOT, FOLDER, objects)]


@pytest.mark.parametrize(
    ("key", "folder", "writer", "written_at"),
    [
        (f"{FOLDER}n_1.1795248000123.pt.trace.json", FOLDER, "n_1", 1_795_248_000.123),
        (f"{FOLDER}n_1.1795248000123456789.pt.trace.json.gz", FOLDER, "n_1", 1_795_248_000.123456789),
        (
            f"{FOLDER}run-a/rank3/n_1.1795248000123456.pt.trace.json",
            f"{FOLDER}run-a/",
            "rank3/n_1",
            1_795_248_000.123456,
        ),
        (f"{FOLDER}n_1.pt.trace.json", FOLDER, "n_1", None),
        (f"{FOLDER}report.algo-1.sqlite", FOLDER, "report.algo-1", None),
        (
            "job-1/tensorboard-output/plugins/profile/2026_11_23_08_24_23/host-1.xplane.pb",
            "job-1/tensorboard-output/plugins/profile/",
            "host-1",
            None,
        ),
        ("job-1/tensorboard-output/algo-2/x.xplane.pb.gz", "job-1/tensorboard-output/", "algo-2/x", None),
    ],
    ids=["ms", "ns, gzip", "us, a folder a rank", "no time", "database", "XLA", "a folder a node"],
)
def test_trace_key_gives_folder_writer_and_time(key: str, folder: str, writer: str, written_at: float | None) -> None:
    found = match_key(key)
    assert found is not None
    assert (found.folder, found.writer, found.written_at) == (folder, writer, written_at)
    assert key.startswith(found.folder)


@pytest.mark.parametrize(
    "key",
    [
        "job-1/kernel-traces/kernels.json",
        "job-1/tensorboard-output/db.sqlite",
        "job-1/output/n_1.1795248000123.pt.trace.json",
        "kernel-traces/n_1.pt.trace.json",
        "job-1/kernel-traces/" + "a/" * 13 + "x.pt.trace.json",
        "job-1/kernel-traces/" + "x" * 1_100 + ".pt.trace.json",
    ],
    ids=["document", "another database", "another folder", "no job", "too deep", "too long"],
)
def test_given_another_key_when_read_then_it_is_no_trace(key: str) -> None:
    assert match_key(key) is None


@pytest.mark.parametrize(
    ("below", "folder", "writer"),
    [
        ("n_1.1795248000123.pt.trace.json", "", "n_1"),
        ("rank3/n_1.1795248000123.pt.trace.json", "", "rank3/n_1"),
        ("output/logs/rank3/n_1.pt.trace.json.gz", "output/logs/", "rank3/n_1"),
        ("plugins/profile/2026_11_23_08_24_23/host-1.xplane.pb", "plugins/profile/", "host-1"),
        ("kernel-traces/report.algo-1.sqlite", "kernel-traces/", "report.algo-1"),
    ],
    ids=["the job's own folder", "a folder a rank", "below an output", "XLA", "one of the five"],
)
def test_trace_in_any_job_folder_has_the_folder_of_its_capture(below: str, folder: str, writer: str) -> None:
    found = match_below(f"{ROOT.folder}{below}", ROOT)
    assert found is not None
    assert (found.root, found.folder, found.writer) == (ROOT, f"{ROOT.folder}{folder}", writer)


@pytest.mark.parametrize(
    "key",
    [
        "runs/job-1/output/model.tar.gz",
        "runs/job-1/output/db.sqlite",
        "runs/job-1/rule-output/n_1.pt.trace.json",
        "runs/job-1/trial-2/checkpoints/n_1.pt.trace.json",
        "runs/job-10/n_1.pt.trace.json",
        "runs/job-1/" + "a/" * 13 + "x.pt.trace.json",
        "runs/job-1//x.pt.trace.json",
        "runs/job-1/" + "x" * 1_100 + ".pt.trace.json",
    ],
    ids=["a model", "a database", "results", "another job's", "another folder", "too deep", "no name", "too long"],
)
def test_other_object_below_a_job_is_no_trace(key: str) -> None:
    assert match_below(key, ROOT) is None


def test_traces_in_a_crowded_job_folder_are_found() -> None:
    objects = Watched()
    for number in range(2_500):
        objects.put("b", f"{ROOT.folder}checkpoints/{number:06d}", b"", "")
    wanted = [f"{ROOT.folder}rank{rank}/n.pt.trace.json" for rank in range(3)] + [f"{ROOT.folder}zz.pt.trace.json"]
    for key in wanted:
        objects.put("b", key, b"", "")
    found, is_cut = listed_folder(objects, "b", ROOT.folder)
    assert [each.key for each in found] == wanted
    assert not is_cut
    assert objects.looked_at < 1_100


def test_truncated_listing_is_reported() -> None:
    found, is_cut = listed_folder(Endless(), "b", ROOT.folder)
    assert (len(found), is_cut) == (MOST_LISTED, True)


def test_each_window_of_four_ranks_is_a_capture() -> None:
    windows = [(f"n_{rank}", AT + 60.0 * window + rank) for window in range(3) for rank in range(4)]
    assert grouped(listed(*windows)) == [["n_0", "n_1", "n_2", "n_3"]] * 3


def test_lagging_writer_is_in_its_own_window() -> None:
    skewed = [("n_0", AT), ("n_0", AT + 10.0), ("n_1", AT + 12.0), ("n_0", AT + 20.0), ("n_1", AT + 22.0)]
    assert grouped(listed(*skewed)) == [["n_0", "n_1"], ["n_0", "n_1"], ["n_0"]]


@pytest.mark.parametrize(("later", "captures"), [(WINDOW_S, 1), (WINDOW_S + 0.001, 2)], ids=["on it", "beyond"])
def test_trace_300_s_after_the_window_still_belongs(later: float, captures: int) -> None:
    assert len(captures_of(ROOT, FOLDER, listed(("n_0", AT), ("n_1", AT + later)))) == captures


def test_time_in_the_name_counts_for_copied_traces() -> None:
    copied = [("n_0", AT), ("n_1", AT + 1.0), ("n_0", AT + 900.0), ("n_1", AT + 901.0)]
    assert len(captures_of(ROOT, FOLDER, listed(*copied, late_s=86_400.0))) == 2


def test_s3_time_counts_if_the_name_lies_ahead() -> None:
    (capture,) = captures_of(ROOT, FOLDER, [ListedObject(f"{FOLDER}n_0.9999999999999.pt.trace.json", AT, 1)])
    assert capture.at == AT


def test_late_rank_keeps_the_name_and_changes_the_version() -> None:
    before, after = (
        captures_of(ROOT, FOLDER, listed(*[(f"n_{rank}", AT + rank) for rank in range(n)])) for n in (3, 4)
    )
    assert before[0].name == after[0].name
    assert before[0].version != after[0].version


def test_rewritten_trace_changes_the_version() -> None:
    (first,) = captures_of(ROOT, FOLDER, [ListedObject(f"{FOLDER}n.pt.trace.json", AT, 1, "a")])
    (again,) = captures_of(ROOT, FOLDER, [ListedObject(f"{FOLDER}n.pt.trace.json", AT, 1, "b")])
    assert first.version != again.version


def test_traces_beyond_the_capture_limit_are_counted() -> None:
    many = listed(*[(f"n_{rank}", AT) for rank in range(MOST_TRACES + 5)])
    (capture,) = captures_of(ROOT, FOLDER, many)
    assert (len(capture.traces), capture.left_out) == (MOST_TRACES, 5)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.floats(0.0, 3_000.0, allow_nan=False)), min_size=1, max_size=40),
    st.randoms(use_true_random=False),
)
def test_captures_are_independent_of_order_with_one_per_writer(
    written: list[tuple[int, float]], chance: object
) -> None:
    objects = listed(*dict.fromkeys((f"n_{who}", AT + round(at, 3)) for who, at in written))
    shuffled = list(objects)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    found = captures_of(ROOT, FOLDER, objects)
    assert [identity(each) for each in found] == [identity(each) for each in captures_of(ROOT, FOLDER, shuffled)]
    assert sum(len(each.traces) for each in found) == len({each.key for each in objects})
    for each in found:
        assert len({trace.writer for trace in each.traces}) == len(each.traces)
        times = [trace.at for trace in each.traces]
        assert max(times) - min(times) <= WINDOW_S


def identity(capture: Capture) -> tuple[str, str]:
    return capture.name, capture.version
