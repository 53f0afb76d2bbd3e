"""``trainguard kernels --list``: what lies below a folder or a prefix, whether it was judged, and how it is chosen."""

import contextlib
import gzip
import io
import json
import shutil
import time
from pathlib import Path
from typing import Any

import boto3
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moto import mock_aws
from typer.testing import CliRunner, Result

from tests.support.kernel_ranks import job
from tests.support.kernel_traces import FP32_GEMM, real_profile, real_text
from trainguard.cli.main import app
from trainguard.core.finding import Severity
from trainguard.kernels.document import KernelProfiles, encode_profiles
from trainguard.kernels.join import across_ranks
from trainguard.kernels.listing import ListedProfile, ListingRequest, listed, newest_first, read_document
from trainguard.local import traces
from trainguard.local.traces import FilesBelow, profiles_below


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["kernels", *map(str, words)])


def found(place: object, *words: object) -> list[dict[str, Any]]:
    result = run(place, "--list", "--json", *words)
    assert result.exit_code == 0, result.output
    profiles: list[dict[str, Any]] = json.loads(result.stdout)["profiles"]
    return profiles


def write(file: Path, text: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two ranks that were judged into a folder of their own, a trace that nothing judged, and a damaged document."""
    root = tmp_path / "jobs"
    for rank in (0, 1):
        write(root / "pair" / f"{rank}.pt.trace.json.gz", b"")
    write(root / "later" / "host_1.1700000000000.pt.trace.json", b"{}")
    write(root / "broken" / "kernels.json", b'{"source": 7}')
    write(root / "settings.json", b"{}")
    write(root / "results" / "kernels.json", encode_profiles(pair(str(root / "pair"))))
    write(root / "results" / "kernels.html", b"")
    return root


def pair(source: str, *, single: bool = False) -> KernelProfiles:
    ranks = [
        msgspec.structs.replace(real_profile(f"pair_rank-{rank}"), trace=f"{rank}.pt.trace.json.gz", rank=rank)
        for rank in ((0,) if single else (0, 1))
    ]
    return KernelProfiles(source=source, ranks=ranks, unread={}, across=across_ranks(ranks))


def test_each_profile_of_a_folder_has_its_status(folder: Path) -> None:
    by_place = {each["place"]: each for each in found(folder)}
    assert {place: each["status"] for place, each in by_place.items()} == {
        "results": "judged in part",
        "later": "not judged",
        "broken": "unreadable",
    }
    judged = by_place["results"]
    assert (judged["name"], judged["why"]) == ("pair", "126 ranks have no trace")
    assert (judged["framework"], judged["traces"], judged["severity"]) == ("pytorch", 2, "medium")
    assert judged["recorded_at"].startswith("2023-04-28T23:51:38")
    assert {"ExposedCommunication", "SlowRank"} <= set(judged["findings"])
    assert "TraceQuality" not in judged["findings"]
    assert (judged["document"], judged["page"]) == ("results/kernels.json", "results/kernels.html")
    assert (by_place["later"]["framework"], by_place["later"]["traces"]) == ("pytorch", 1)
    assert "kernels.json" in by_place["broken"]["why"]


@pytest.mark.parametrize(
    ("words", "places"),
    [
        ((), {"results", "later", "broken"}),
        (("--name", "PAIR"), {"results"}),
        (("--name", "late"), {"later"}),
        (("--status", "not judged"), {"later"}),
        (("--made-with", "pytorch"), {"results", "later"}),
        (("--made-with", "jax"), set()),
        (("--finding", "kernels/exposedcommunication"), {"results"}),
        (("--finding", "SlowRank", "--since", "30d"), set()),
        (("--since", "1h"), {"later", "broken"}),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
def test_given_words_when_listed_then_they_choose(folder: Path, words: tuple[str, ...], places: set[str]) -> None:
    """The pair was recorded in 2023."""
    assert {each["place"] for each in found(folder, *words)} == places


def test_listing_has_a_line_per_profile_and_can_fail_a_build(folder: Path) -> None:
    result = run(folder, "--list")
    assert result.exit_code == 0
    assert "3 kernel profiles below" in result.stdout
    assert "ExposedCommunication" in result.stdout
    assert run(folder, "--list", "--fail-on-fire").exit_code == 1
    assert run(folder, "--list", "--fail-on-fire", "--status", "not judged").exit_code == 0


@pytest.mark.parametrize("source", ["jobs/pair", "./jobs/pair/", "../jobs/pair"])
def test_relative_document_listed_elsewhere_judges_its_traces(
    folder: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    write(folder / "results" / "kernels.json", encode_profiles(pair(source)))
    monkeypatch.chdir(folder)
    assert {each["status"] for each in found(".", "--name", "pair")} == {"judged in part"}


def test_output_of_the_command_is_listed_with_its_page(tmp_path: Path) -> None:
    write(tmp_path / "traces" / "a.pt.trace.json.gz", gzip.compress(real_text("pair_rank-0")))
    assert run(tmp_path / "traces", "--out", tmp_path / "out").exit_code == 0
    (made,) = found(tmp_path)
    assert (made["name"], made["traces"], made["page"]) == ("traces", 1, "out/kernels.html")


def test_single_trace_is_listed_by_the_document_of_its_file(folder: Path) -> None:
    one = pair(str(folder / "pair" / "0.pt.trace.json.gz"), single=True)
    write(folder / "results" / "kernels.json", encode_profiles(one))
    by_place = {each["place"]: each for each in found(folder)}
    assert by_place["results"]["name"] == "0.pt.trace.json.gz"
    assert (by_place["pair"]["status"], by_place["pair"]["traces"]) == ("not judged", 1)


def test_copies_of_a_document_are_one_profile(folder: Path) -> None:
    shutil.copytree(folder / "results", folder / "a" / "copy")
    assert [each["place"] for each in found(folder, "--status", "judged in part")] == ["results"]


def test_place_without_profiles_is_empty_and_no_fault(tmp_path: Path) -> None:
    result = run(tmp_path, "--list")
    assert (result.exit_code, "0 kernel profiles" in result.stdout) == (0, True)


@pytest.mark.parametrize("place", ["nowhere", "s3://"])
def test_missing_place_is_refused_in_a_sentence(place: str) -> None:
    result = run(place, "--list")
    assert (result.exit_code, "cannot be read" in result.output) == (2, True)


@pytest.mark.parametrize(
    "words",
    [
        ("--list", "--out", "x"),
        ("--list", "--compare", "x"),
        ("--list", "--status", "done"),
        ("--list", "--made-with", "caffe"),
        ("--out", "x", "--name", "y"),
    ],
    ids=" ".join,
)
def test_conflicting_arguments_are_refused(words: tuple[str, ...]) -> None:
    assert run(".", *words).exit_code == 2


def test_given_a_large_document_when_listed_then_it_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MOST_BYTES", 1_000)
    assert "over 1,000 bytes" in next(each for each in found(folder) if each["place"] == "results")["why"]


def test_given_a_prefix_when_listed_then_it_is_read_from_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    ranks = job([6_000.0, 6_000.0])
    document = KernelProfiles(source="s3://traces/job/one", ranks=ranks[:1], unread={}, across=across_ranks(ranks))
    with mock_aws():
        s3 = boto3.client("s3")
        s3.create_bucket(Bucket="traces")
        for key, body in {
            "job/one/trace.json": b"",
            "job/one/worker_1.2.pt.trace.json.gz": b"",
            "job/rule-output/kernels.json": encode_profiles(document),
            "job/host.xplane.pb": b"",
            "job-2/other.pt.trace.json": b"",
        }.items():
            s3.put_object(Bucket="traces", Key=key, Body=body)
        below = {each["place"]: each for each in found("s3://traces/job")}
        assert {place: (each["status"], each["framework"]) for place, each in below.items()} == {
            "one": ("not judged", "pytorch"),
            "rule-output": ("judged", "pytorch"),
            ".": ("not judged", "xla"),
        }
        assert below["rule-output"]["traces"] == 2, "the document joins two ranks and lists one"
        assert below["."]["name"] == "host.xplane.pb"
        assert len(found("s3://traces")) == 4
        assert run("s3://nowhere", "--list").exit_code == 2


def line(document: KernelProfiles) -> ListedProfile:
    text = encode_profiles(document)
    return listed(read_document(text), place="x", document="x/kernels.json", page=None, changed_s=1.8e9)


def test_rules_of_a_document_are_in_the_order_of_the_rank() -> None:
    made = line(KernelProfiles(source="here/resnet", ranks=[real_profile("resnet50_workers0")], unread={}))
    assert (made.name, made.status, made.framework) == ("resnet", "judged", "pytorch")
    rules = [each.id.removeprefix("kernels/") for each in real_profile("resnet50_workers0").findings]
    assert made.findings == [rule for rule in rules if rule != "TraceQuality"]
    assert made.gain_share == max(round(each.gain.share, 4) for each in real_profile("resnet50_workers0").findings)
    assert made.severity is Severity.HIGH


def test_missing_gpu_or_unread_files_are_judged_in_part() -> None:
    made = line(KernelProfiles(source="here", ranks=[real_profile("cpu_only_no_gpu_events")], unread={"a": "broken"}))
    assert (made.status, made.why) == ("judged in part", "1 file could not be read, no trace has work of a GPU")
    assert (made.findings, made.severity) == ([], None)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_raise_one_kind_of_error(text: bytes) -> None:
    with contextlib.suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
        read_document(text)


def test_hostile_texts_are_listed_as_one_plain_line(tmp_path: Path) -> None:
    rank = msgspec.structs.replace(job([6_000.0], gemms={0: FP32_GEMM})[0], gpus=["\x1b[2Jgpu\n" * 500])
    finding = msgspec.structs.replace(rank.findings[0], id="kernels/\x1b[31m" + "x" * 5_000)
    document = KernelProfiles(
        source="\x1b[2J\u202e", ranks=[msgspec.structs.replace(rank, findings=[finding])], unread={}
    )
    write(tmp_path / "a" / "kernels.json", encode_profiles(document))
    (shown,) = found(tmp_path)
    for text in (shown["name"], *shown["gpus"], *shown["findings"]):
        assert len(text) <= 200
        assert not {"\x1b", "\n", "\u202e"} & set(text)
    assert "\x1b[2J" not in run(tmp_path, "--list").output


def test_newest_profile_is_first_and_those_without_time_last() -> None:
    times = {"a": "2026-01-01T00:00:00.000Z", "b": None, "c": "2026-03-01T00:00:00.000Z"}
    made = [ListedProfile(name=name, place=name, status="judged", recorded_at=at) for name, at in times.items()]
    assert [each.name for each in newest_first(made)] == ["c", "a", "b"]
    assert [each.name for each in made if ListingRequest(since=1_772_323_200.0).has(each)] == ["c"], "on the second"
    assert not [each for each in made if ListingRequest(since=1_772_323_200.001).has(each)]


def test_hundred_thousand_traces_are_listed_in_seconds() -> None:
    (one,) = job([6_000.0])
    ranks = [msgspec.structs.replace(one, trace=f"{rank}.pt.trace.json") for rank in range(1_000)]
    document = encode_profiles(KernelProfiles(source="s3://b/jobs/7", ranks=ranks, unread={}))
    names = [f"{place}/{rank}.pt.trace.json" for place in range(100) for rank in range(1_000)]
    changed = dict.fromkeys([*names, "7/kernels.json"], 1.8e9)
    begun = time.process_time()
    made = list(profiles_below(FilesBelow("s3://b/jobs/", changed, lambda _: io.BytesIO(document))))
    assert time.process_time() - begun < 10.0
    assert (len(made), sum(each.traces for each in made)) == (100, 100_000)
