"""What a person gets who types something wrong: one sentence on what would be right, and no wall of names."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from trainguard.cli.main import app


def run(*words: object, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], env=env)


def test_unlike_rule_name_lists_families_and_suggests_none() -> None:
    result = run("params", "zzz")
    assert (result.exit_code, result.stdout) == (2, "")
    families = "`trainguard params` lists the rules of all families: Profiler rules, Training health, Kernel profiles"
    assert f"there is no rule 'zzz' in TrainGuard; {families}\n" in result.stderr
    assert "perhaps" not in result.stderr
    assert "in TrainGuard; perhaps you mean LowGPUUtilization or " in run("params", "gpuutil").stderr
    assert "perhaps you mean training/ClassImbalance or LoadBalancing" in run("params", "clasimbalance").stderr


@pytest.mark.parametrize("word", ["", "trainguard:BatchSize_window", "TrainGuard:muted"])
def test_tag_without_a_value_is_called_a_tag_and_not_a_file(word: str) -> None:
    result = run("params", "validate", word)
    assert result.exit_code == 1
    assert (
        result.stdout
        == f"command line\ttag\t{word or '-'}\ttrainguard:<Rule>_<parameter>=<value>, or an existing file\n"
    )


@pytest.mark.parametrize(("body", "code"), [(b"", 1), (b"{bad", 1), (b"\xff\xfe", 1), (b"null", 1)])
def test_file_without_valid_json_is_a_fault_of_that_file(tmp_path: Path, body: bytes, code: int) -> None:
    file = tmp_path / "settings.json"
    file.write_bytes(body)
    result = run("params", "validate", file)
    assert result.exit_code == code
    assert result.stdout.startswith(f"file {file}\t")
    assert "a JSON object such as" in result.stdout


@pytest.mark.parametrize("option", ["--params", "--prices"])
@pytest.mark.parametrize("body", [None, b"", b"{bad", b"\xff"])
def test_unreadable_file_or_folder_is_named_in_one_sentence(tmp_path: Path, option: str, body: bytes | None) -> None:
    given = tmp_path / "gîven"
    given.mkdir() if body is None else given.write_bytes(body)
    result = run("analyze", tmp_path, "--out", tmp_path / "out", option, given)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert "gîven" in result.stderr


@pytest.mark.parametrize("words", [("status", "--help"), ("params", "show", "--help")])
def test_optional_argument_has_one_pair_of_brackets_in_help(
    words: tuple[str, ...],
) -> None:
    usage = next(line for line in run(*words).stdout.splitlines() if "Usage:" in line)
    assert re.search(r" \[(JOB|RULE)\]", usage)
    assert "[[" not in usage


@pytest.mark.parametrize("command", ["report", "replay"])
def test_mistyped_folder_without_a_region_is_called_missing(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    result = run(command, "my-jbo")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(
        "trainguard: there is no folder my-jbo here, so it is taken as the name of a training job; no Region is set. "
    )
    missing = run(command, "./my-jbo")
    assert missing.exit_code == 2
    assert "'./my-jbo' does not exist, expected a folder" in missing.stderr
