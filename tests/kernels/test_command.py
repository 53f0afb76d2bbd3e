"""``trainguard kernels``: files, table, JSON, exit codes, and the published schema."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from jsonschema import Draft202012Validator
from moto import mock_aws
from typer.testing import CliRunner

from tests.support.kernel_traces import FP32_GEMM, TraceWriter, real_names, real_profile, real_text
from trainguard.cli.commands.kernels.schema import kernels_schema
from trainguard.cli.main import app
from trainguard.kernels.document import KernelProfiles, encode_profiles
from trainguard.report.document import encode_schema

PUBLISHED = Path(__file__).parents[2] / "docs" / "schemas" / "kernels-1.json"


def run(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["kernels", *map(str, words)])
    return result.exit_code, result.output


def test_the_published_schema_is_what_the_code_makes() -> None:
    assert PUBLISHED.read_bytes() == encode_schema(kernels_schema()), (
        "renew it: python -m trainguard.cli.commands.kernels.schema > docs/schemas/kernels-1.json"
    )


def test_every_real_profile_keeps_the_schema() -> None:
    ranks = [real_profile(name) for name in real_names()]
    body = encode_profiles(KernelProfiles(source="here", ranks=ranks, unread={}))
    Draft202012Validator(json.loads(PUBLISHED.read_bytes())).validate(json.loads(body))


def test_a_folder_gives_a_profile_a_rank(tmp_path: Path) -> None:
    for rank in (1, 0):
        (tmp_path / f"{rank}.pt.trace.json.gz").write_bytes(gzip.compress(real_text(f"pair_rank-{rank}")))
    (tmp_path / "broken.pt.trace.json").write_bytes(b"broken")
    (tmp_path / "settings.json").write_text("{}")
    code, said = run(tmp_path, "--out", tmp_path / "out")
    assert code == 0, said
    assert "kernels/ExposedCommunication" in said
    assert "1 file not read: settings.json. They do not begin as a trace" in said
    document = json.loads((tmp_path / "out" / "kernels.json").read_bytes())
    assert [rank["rank"] for rank in document["ranks"]] == [0, 1]
    assert list(document["unread"]) == ["broken.pt.trace.json"]
    assert document["ranks"][0]["exposed_communication_ns"] == 336_983_000
    assert run(tmp_path, "--out", tmp_path / "out", "--fail-on-fire")[0] == 1


def test_without_a_folder_the_verdict_is_printed_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "0.pt.trace.json").write_bytes(real_text("pair_rank-0"))
    code, said = run("0.pt.trace.json")
    assert code == 0, said
    assert said.startswith("Could be faster. The GPU is busy")
    assert "kernels/ExposedCommunication" in said
    assert [each.name for each in tmp_path.iterdir()] == ["0.pt.trace.json"]


def test_a_folder_of_several_forms_takes_all_of_them(tmp_path: Path) -> None:
    (tmp_path / "rank0.pt.trace.json").write_bytes(real_text("pair_rank-0"))
    (tmp_path / "rank1.json").write_bytes(real_text("pair_rank-1"))
    (tmp_path / "rank2.pt.trace.json").write_bytes(b"{broken")
    (tmp_path / "settings.json").write_text('{"batch": 32}')
    (tmp_path / "report.nsys-rep").write_bytes(b"report")
    code, said = run(tmp_path)
    assert code == 0, said
    assert "The GPUs of 2 ranks" in said
    for name in ("rank2.pt.trace.json was not read", "report.nsys-rep was not read", "1 file not read: settings.json"):
        assert name in said


def test_traces_beyond_the_shown_ones_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainguard.cli.commands.kernels.judged._SHOWN_RANKS", 1)
    for rank in (0, 1):
        (tmp_path / f"{rank}.pt.trace.json").write_bytes(real_text(f"pair_rank-{rank}"))
    _, said = run(tmp_path, "--out", tmp_path / "out")
    assert "1 more trace not shown here: 1.pt.trace.json." in said


def test_unknown_rule_of_the_list_suggests_the_nearest(tmp_path: Path) -> None:
    code, said = run(tmp_path, "--list", "--finding", "LaunchBond")
    assert code == 2
    assert "perhaps you mean kernels/LaunchBound" in said


def test_json_is_the_document(tmp_path: Path) -> None:
    trace = tmp_path / "rank3.json"
    trace.write_bytes(real_text("h100_bert_small_1step"))
    code, said = run(trace, "--out", tmp_path / "out", "--json")
    document = json.loads(said)
    assert (code, document) == (0, json.loads((tmp_path / "out" / "kernels.json").read_bytes()))
    assert document["ranks"][0]["rank"] == 3, "the file's name says it where the trace does not"


def test_a_trace_without_gpu_has_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "cpu.json").write_bytes(real_text("cpu_only_no_gpu_events"))
    assert run(tmp_path / "cpu.json", "--out", tmp_path / "out")[0] == 3


@pytest.mark.parametrize("content", [None, b"", b"no trace"])
def test_what_cannot_be_read_is_refused_in_one_sentence(tmp_path: Path, content: bytes | None) -> None:
    trace = tmp_path / "trace.json"
    if content is not None:
        trace.write_bytes(content)
    code, said = run(trace, "--out", tmp_path / "out")
    assert code == 2
    assert "cannot be read" in said
    assert "Traceback" not in said


def test_hostile_names_do_not_steer_the_terminal(tmp_path: Path) -> None:
    made = TraceWriter()
    made.step(1, 0, 100)
    made.kernel(FP32_GEMM + "\x1b[2J", 10, 50, launch=0)
    (tmp_path / "trace.json").write_bytes(made.text())
    for words in ([], ["--json"]):
        assert "\x1b[2J" not in run(tmp_path / "trace.json", "--out", tmp_path / "out", *words)[1]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        s3 = boto3.client("s3")
        s3.create_bucket(Bucket="traces")
        for rank in (0, 1):
            body = gzip.compress(real_text(f"pair_rank-{rank}"))
            s3.put_object(Bucket="traces", Key=f"job/{rank}.pt.trace.json.gz", Body=body)
        s3.put_object(Bucket="traces", Key="job-2/other.pt.trace.json", Body=b"{}")
        yield "s3://traces"


@pytest.mark.parametrize(
    ("place", "ranks"), [("/job", [0, 1]), ("/job/", [0, 1]), ("/job/1.pt.trace.json.gz", [1]), ("", [0, 1])]
)
def test_traces_in_s3_are_streamed(bucket: str, place: str, ranks: list[int], tmp_path: Path) -> None:
    code, said = run(bucket + place, "--out", tmp_path / "out")
    assert code == 0, said
    document = json.loads((tmp_path / "out" / "kernels.json").read_bytes())
    assert [rank["rank"] for rank in document["ranks"]] == ranks
    assert list(document["unread"]) == (["job-2/other.pt.trace.json"] if place == "" else [])


@pytest.mark.parametrize("place", ["/nothing", "x/job", "/job-"])
def test_a_place_in_s3_without_traces_is_refused(bucket: str, place: str, tmp_path: Path) -> None:
    code, said = run(bucket + place, "--out", tmp_path / "out")
    assert (code, "cannot be read" in said) == (2, True)
