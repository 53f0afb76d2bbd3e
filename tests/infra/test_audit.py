"""`make audit`: what databases say is reported unchanged, and one that does not answer gives no all-clear."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from infra.audit import LOCKS, AuditAnswer, judged, node_answer, python_answer, results
from infra.places import PROJECT_ROOT

OLD_FLAW = AuditAnswer(("jinja2 2.11.2: PYSEC-2021-66",), 1)


def python(*names: str, flawed: str = "", skipped: str = "") -> str:
    packages: list[dict[str, object]] = [
        {"name": name, "version": "1.0", "vulns": [{"id": "CVE-1"}] if name == flawed else []}
        for name in names
        if name != skipped
    ]
    if skipped:
        packages.append({"name": skipped, "skip_reason": "not found"})
    return json.dumps({"dependencies": packages})


def node(*flawed: str) -> str:
    flaws = {name: {"severity": "high"} for name in flawed}
    return json.dumps({"vulnerabilities": flaws, "metadata": {"dependencies": {"total": 25}}})


@pytest.mark.parametrize(
    ("answer", "control", "said", "code"),
    [
        (python_answer(python("a", "b")), OLD_FLAW, "no known flaw in 2 packages", 0),
        (python_answer(python("a", "b", flawed="b")), OLD_FLAW, "1 known flaws: b 1.0: CVE-1", 1),
        (python_answer(python("a", "b", skipped="b")), OLD_FLAW, "not answered for 1 packages: b", 2),
        (python_answer(python("a")), AuditAnswer((), 1), "not answered: the database does not know an old flaw", 2),
        (node_answer(node()), OLD_FLAW, "no known flaw in 25 packages", 0),
        (node_answer(node("lodash")), AuditAnswer(), "1 known flaws: lodash: high", 1),
    ],
)
def test_only_a_complete_vulnerability_database_gives_all_clear(
    answer: AuditAnswer, control: AuditAnswer, said: str, code: int
) -> None:
    result = judged("lock", lambda: answer, lambda: control)
    assert result.text.startswith(said)
    assert result.code == code


@pytest.mark.parametrize(
    "printed", ["", "no JSON", "[]", '{"message": "405 Method Not Allowed"}', '{"error": {"code": "ENOTFOUND"}}']
)
def test_given_no_answer_when_judged_then_it_is_named(printed: str) -> None:
    result = judged("package-lock.json", lambda: node_answer(printed), lambda: OLD_FLAW)
    assert (result.text.startswith("not answered: "), result.code) == (True, 2)


def test_failing_tool_still_gives_each_lock_file_a_result(tmp_path: Path) -> None:
    def run(command: Sequence[str], folder: Path) -> str:
        del folder
        if command[0] == "npm":
            raise subprocess.TimeoutExpired(command, 600)
        return "a==1.0" if command[0] == "uv" else python("a", flawed="" if "known.txt" not in command[-1] else "a")

    found = results(tmp_path, "uv", run)
    assert [each.what for each in found][:: len(LOCKS) + 1] == ["uv.lock", "package-lock.json"]
    assert [each.code for each in found] == [0] * (1 + len(LOCKS)) + [2]


def test_each_lock_file_of_the_repository_is_audited() -> None:
    found = {file for folder in ("emulator", "infra", "tests") for file in (PROJECT_ROOT / folder).rglob("*.lock")}
    assert found == set(LOCKS)


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: f"{lock.parent.name}/{lock.stem}")
def test_lock_of_a_tool_has_one_version_and_hashes_per_package(lock: Path) -> None:
    entries = lock.read_text("utf-8").replace("\\\n", " ").splitlines()
    packages = [entry for entry in entries if entry and not entry.lstrip().startswith("#")]
    assert len(packages) > 5
    assert [entry for entry in packages if "==" not in entry.split()[0] or "--hash=sha256:" not in entry] == []


def test_node_lock_has_a_hash_per_package() -> None:
    packages = json.loads((PROJECT_ROOT / "package-lock.json").read_text("utf-8"))["packages"]
    assert [
        name for name, each in packages.items() if name and "integrity" not in each and not each.get("inBundle")
    ] == []
