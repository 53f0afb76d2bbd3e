"""Which objects of a job are read for a hang, when they are asked for, and what becomes of late and damaged ones."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import trainguard.hangs.files
from tests.hangs.simulated import Fault, Job
from trainguard.core.errors import PortUnavailableError
from trainguard.core.layout import ProfileRoot
from trainguard.core.ports import ListedObject, ReadableObjects
from trainguard.core.records import JobRecord
from trainguard.engine.jobs.hang_watch import MOST_ASKED, known_hang_of
from trainguard.engine.streams.job_streams import JobState
from trainguard.engine.verdicts.episodes import FiringHistory
from trainguard.engine.verdicts.verdict import RuleOutcome
from trainguard.hangs.files import WINDOW_S, hang_files, hang_of, listed_files, version_of
from trainguard.rules.hung_job.rule import no_power
from trainguard.rules.hung_job.text import HungKind, text
from trainguard.rules.rule_result import RuleResult
from trainguard.testing.memory import MemoryWorld

BUCKET, AT = "profiles", 1_800_000_000.0
ROOT = ProfileRoot("runs/", "job")
JOB = JobRecord("job", "arn:job", BUCKET, "runs/")
TIME = "2027-01-15T08-00-00Z"
TIME_S = 1_800_000_000.0


def listed(*names: str, at: float = AT + 30.0) -> list[ListedObject]:
    return [ListedObject(f"runs/job/{name}", at, 10, f"{number}") for number, name in enumerate(names)]


@pytest.mark.parametrize(
    ("name", "node", "at", "rank"),
    [
        (f"hang-dumps/algo-2/{TIME}/nccl_trace_rank_12", "algo-2", TIME_S, 12),
        (f"hang-dumps/algo-2/{TIME}/nccl_trace_rank_12.json.gz", "algo-2", TIME_S, 12),
        (f"hang-dumps/algo-2/{TIME}/stack_rank_3.txt", "algo-2", TIME_S, 3),
        (f"hang-dumps/algo-2/{TIME}/stack_process_77.txt.gz", "algo-2", TIME_S, None),
        (f"hang-dumps/algo-2/{TIME}/stack_process_77.json", "algo-2", TIME_S, None),
        (f"hang-dumps/algo-2/{TIME}/ncclras.json", "algo-2", TIME_S, None),
        ("hang-dumps/algo-2/nccl_trace_rank_1", "algo-2", AT + 30.0, 1),
        ("hang-dumps/nccl_trace_rank_1", "", AT + 30.0, 1),
        # A clock that is years ahead must not make all others old.
        ("hang-dumps/algo-2/2099-01-01T00-00-00Z/nccl_trace_rank_1", "algo-2", AT + 30.0, 1),
        ("hang-dumps/algo-2/2027-99-99T00-00-00Z/nccl_trace_rank_1", "algo-2", AT + 30.0, 1),
        ("checkpoints/nccl_trace_rank_5", "", AT + 30.0, 5),
        ("trainer-output/deep/nccl_trace_rank_5.json", "", AT + 30.0, 5),
    ],
)
def test_a_file_is_known_by_its_key(name: str, node: str, at: float, rank: int | None) -> None:
    (file,) = hang_files(ROOT, listed(name))
    assert (file.node, file.at, file.rank) == (node, at, rank)


@pytest.mark.parametrize(
    "name",
    [
        "rule-output/TrainGuardReport/hang.json",
        "checkpoints/model_rank_1.pt",
        "checkpoints/stack_rank_1.txt",
        "hang-dumps/algo-1/notes.txt",
        "source/nccl_trace_rank_1",
        "hang-dumps/algo-1/nccl_trace_rank_99999999999",
        "../other/hang-dumps/nccl_trace_rank_1x",
    ],
)
def test_other_objects_of_a_job_are_left_alone(name: str) -> None:
    assert hang_files(ROOT, listed(name)) == []


def test_only_the_newest_standstill_counts() -> None:
    older = listed("hang-dumps/algo-1/nccl_trace_rank_1", at=AT - WINDOW_S - 1.0)
    assert [each.rank for each in hang_files(ROOT, [*older, *listed("hang-dumps/algo-1/nccl_trace_rank_2")])] == [2]


@pytest.fixture
def dumps(tmp_path: Path) -> list[tuple[str, bytes]]:
    job = Job(8, fault=Fault(kind="killed", ranks=(5,), step=3))
    job.run()
    job.write(tmp_path, as_json=False, only_active=False)
    return [(f"runs/job/hang-dumps/algo-1/{TIME}/{each.name}", each.read_bytes()) for each in tmp_path.iterdir()]


def uploaded(world: MemoryWorld, dumps: Sequence[tuple[str, bytes]], at: float = AT) -> None:
    world.objects.now = at
    for key, body in dumps:
        world.objects.put(BUCKET, key, body, "application/octet-stream")


def test_order_and_repeats_of_uploads_do_not_matter(dumps: list[tuple[str, bytes]]) -> None:
    whole = MemoryWorld()
    uploaded(whole, dumps)
    first = hang_of(whole.objects, BUCKET, ROOT)
    assert first is not None
    assert [(each.rank, each.kind, each.node) for each in first.named] == [(5, "no_dump", "algo-1")]

    @given(st.permutations(dumps), st.lists(st.sampled_from(dumps), max_size=3), st.integers(0, len(dumps)))
    def check(shuffled: list[tuple[str, bytes]], again: list[tuple[str, bytes]], before: int) -> None:
        world = MemoryWorld()
        uploaded(world, shuffled[:before])
        hang_of(world.objects, BUCKET, ROOT)
        uploaded(world, [*shuffled[before:], *again])
        assert hang_of(world.objects, BUCKET, ROOT) == first

    check()


def test_what_was_read_is_read_once(dumps: list[tuple[str, bytes]], monkeypatch: pytest.MonkeyPatch) -> None:
    world = MemoryWorld()
    uploaded(world, dumps)
    first = hang_of(world.objects, BUCKET, ROOT)
    monkeypatch.setattr(trainguard.hangs.files, "read_hang", None)
    assert hang_of(world.objects, BUCKET, ROOT) == first


def test_ranks_that_were_left_out_left_a_dump(dumps: list[tuple[str, bytes]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainguard.hangs.files, "MOST_ALL_BYTES", 20_000)
    world = MemoryWorld()
    uploaded(world, dumps)
    found = hang_of(world.objects, BUCKET, ROOT)
    assert found is not None
    assert 0 < found.left_out < len(dumps)
    assert {each.rank for each in found.named} <= {5}


@pytest.mark.parametrize("body", [b"", b"[]", b'{"at": "x"}', b"{" * 50_000])
def test_a_damaged_verdict_is_made_again(body: bytes, dumps: list[tuple[str, bytes]]) -> None:
    world = MemoryWorld()
    uploaded(world, [*dumps, (f"{ROOT.report}hang.json", body)])
    found = hang_of(world.objects, BUCKET, ROOT)
    assert found is not None
    assert found.culprits == 1


def standing(kind: HungKind = HungKind.STANDS_STILL) -> RuleOutcome:
    return RuleOutcome("HungJob", RuleResult.of_kind(text, kind, no_power(None)), FiringHistory())


def test_new_files_are_asked_for_once_and_then_known(dumps: list[tuple[str, bytes]]) -> None:
    world, state = MemoryWorld(), JobState()
    uploaded(world, dumps)
    for now in (AT + 10.0, AT + 60.0, AT + 120.0):
        assert known_hang_of(JOB, standing(), state, world.services, now=now) is None
        assert len(world.reports.started) == (now > AT + 20.0)
    version = version_of(listed_files(world.objects, BUCKET, ROOT))
    assert world.reports.started == {f"hang-{version}-job": {"kind": "hang", "job": "job"}}
    found = hang_of(world.objects, BUCKET, ROOT)
    state.hang = known_hang_of(JOB, standing(), state, world.services, now=AT + 180.0)
    assert state.hang == found
    uploaded(world, [(f"runs/job/hang-dumps/algo-1/{TIME}/stack_rank_1.txt", b"x")], AT + 200.0)
    assert known_hang_of(JOB, standing(), state, world.services, now=AT + 300.0) == found
    assert len(world.reports.started) == 2


@pytest.mark.parametrize("kind", [HungKind.WORKS, HungKind.NO_POWER, HungKind.NOT_KNOWN])
def test_dumps_of_a_job_that_goes_on_are_not_read(kind: HungKind, dumps: list[tuple[str, bytes]]) -> None:
    world = MemoryWorld()
    uploaded(world, dumps)
    assert known_hang_of(JOB, standing(kind), JobState(), world.services, now=AT + 60.0) is None
    assert world.reports.started == {}
    assert known_hang_of(replace(JOB, closing=True), standing(kind), JobState(), world.services, now=AT + 60.0) is None
    assert len(world.reports.started) == 1


def test_a_job_asks_for_so_many_sets_of_files_alone(dumps: list[tuple[str, bytes]]) -> None:
    world, state = MemoryWorld(), JobState()
    for number in range(MOST_ASKED + 5):
        uploaded(world, [(dumps[0][0], dumps[0][1] + bytes([number]))])
        known_hang_of(JOB, standing(), state, world.services, now=AT + 60.0)
    assert len(world.reports.started) == MOST_ASKED


class _Down:
    def list(self, *_: object) -> None:
        raise PortUnavailableError("S3", "ListObjectsV2", "503")


def test_files_that_cannot_be_listed_cost_no_evaluation() -> None:
    world = MemoryWorld()
    down: ReadableObjects = _Down()  # type: ignore[assignment]
    services = replace(world.services, objects=down)
    assert known_hang_of(JOB, standing(), JobState(), services, now=AT) is None
    assert [each.what for each in world.journal.entries] == ["port_failures"]
