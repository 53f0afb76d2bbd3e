"""A profile's files by their names alone."""

import gzip
from pathlib import Path

import pytest

from tests.unit.local.places import write
from trainguard.core.errors import NoProfileError
from trainguard.formats.profile.keys import FrameworkKey, SystemKey, parse_key
from trainguard.local.profile import NodeFiles, read_profile
from trainguard.local.sources import FilesAsBucket, open_folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(tmp_path) / "profiler-output"


def test_profile_objects_have_their_node_and_the_deployed_key(root: Path) -> None:
    profile = read_profile(open_folder(str(root)))
    assert list(profile.nodes) == ["algo-1", "algo-2"]
    for node, held in profile.nodes.items():
        assert [parsed.minute for parsed in held.minutes.values()] == sorted(p.minute for p in held.minutes.values())
        for key, parsed in {**held.minutes, **held.framework}.items():
            assert parse_key(key) == parsed
            assert isinstance(parsed, SystemKey | FrameworkKey)
            assert parsed.node == node
            assert key == f"small-job/profiler-output/{profile.files[key]}"
    assert profile.ended
    assert profile.foreign == ()
    assert profile.size == sum(file.stat().st_size for file in root.rglob("*.json"))


def test_names_decide_for_compressed_files_or_other_hours(root: Path) -> None:
    before = read_profile(open_folder(str(root)))
    for number, file in enumerate(sorted(root.rglob("*.json"))):
        moved = file.parent.parent / "1999123100" / "deeper" / file.name
        moved.parent.mkdir(parents=True, exist_ok=True)
        if number % 2:
            moved.with_name(moved.name + ".gz").write_bytes(gzip.compress(file.read_bytes()))
        else:
            moved.write_bytes(file.read_bytes())
        file.unlink()
    after = read_profile(open_folder(str(root)))
    assert {node: set(held.minutes) for node, held in after.nodes.items()} == {
        node: set(held.minutes) for node, held in before.nodes.items()
    }
    assert {node: set(held.framework) for node, held in after.nodes.items()} == {
        node: set(held.framework) for node, held in before.nodes.items()
    }


def test_tensorflow_trace_is_represented_by_its_metadata(root: Path) -> None:
    step = "framework/tensorflow/detailed_profiling/2026112117/000000010"
    metadata = f"{step}/70-algo-1_1795248100000000_1795248200000000.metadata"
    trace = f"{step}/plugins/profile/2026_11_21_17_00_00/algo-1.trace.json.gz"
    for name in (metadata, trace):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")
    profile = read_profile(open_folder(str(root)))
    assert profile.foreign == ()
    assert [profile.files[key] for key in profile.shared] == [metadata, trace]
    key = profile.shared[0]
    assert profile.nodes["algo-1"].framework[key].end_us == 1_795_248_200_000_000
    assert profile.objects == len(list(root.rglob("*.json"))) + 1
    objects = FilesAsBucket(NodeFiles(profile, "algo-2", profile.source.read))
    listed = objects.list(profile.source.place, key.rpartition("/")[0], "")
    assert [each.key for each in listed] == list(profile.shared)


def test_other_file_kinds_and_second_copies_are_foreign(root: Path) -> None:
    first = next(iter(sorted((root / "system" / "incremental").rglob("*.json"))))
    copy = root / "system" / "incremental" / "2099010100" / first.name
    copy.parent.mkdir()
    copy.write_bytes(first.read_bytes())
    others = ("notes.txt", "framework/pytorch/cprofile/algo-1/x/python_stats", f"system/{first.stem}.tmp")
    for name in others:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")
    assert set(read_profile(open_folder(str(root))).foreign) == {*others, copy.relative_to(root).as_posix()}


def test_keys_of_a_folder_with_an_impossible_job_name_are_valid(tmp_path: Path) -> None:
    job = write(tmp_path).rename(tmp_path / "a job & its copy")
    profile = read_profile(open_folder(str(job)))
    assert all(isinstance(parse_key(key), SystemKey) for node in profile.nodes.values() for key in node.minutes)


def test_streams_without_objects_make_no_profile(tmp_path: Path) -> None:
    (tmp_path / "profiler-output" / "system").mkdir(parents=True)
    (tmp_path / "profiler-output" / "system" / "training_job_end.ts").write_bytes(b"")
    with pytest.raises(NoProfileError, match="holds no profile"):
        read_profile(open_folder(str(tmp_path)))
