"""`make audit`: what databases say is told as it is, and one that does not answer gives no all-clear."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from infra.audit import LOCKS, Answer, Audit, judged, node_answer, python_answer
from infra.bundling import PROJECT_ROOT

OLD_FLAW = Answer(("jinja2 2.11.2: PYSEC-2021-66",), 1)


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
        (python_answer(python("a")), Answer((), 1), "not answered: the database does not know an old flaw", 2),
        (node_answer(node()), OLD_FLAW, "no known flaw in 25 packages", 0),
        (node_answer(node("lodash")), Answer(), "1 known flaws: lodash: high", 1),
    ],
)
def test_given_an_answer_when_judged_then_only_a_database_that_knows_flaws_and_packages_gives_an_all_clear(
    answer: Answer, control: Answer, said: str, code: int
) -> None:
    result = judged("lock", lambda: answer, lambda: control)
    assert result.said.startswith(said)
    assert result.code == code


@pytest.mark.parametrize(
    "printed", ["", "no JSON", "[]", '{"message": "405 Method Not Allowed"}', '{"error": {"code": "ENOTFOUND"}}']
)
def test_given_no_answer_when_judged_then_it_is_named(printed: str) -> None:
    result = judged("package-lock.json", lambda: node_answer(printed), lambda: OLD_FLAW)
    assert (result.said.startswith("not answered: "), result.code) == (True, 2)


def test_given_a_tool_that_fails_when_all_are_asked_then_each_lock_file_has_a_result(tmp_path: Path) -> None:
    def run(command: Sequence[str], folder: Path) -> str:
        del folder
        if command[0] == "npm":
            raise subprocess.TimeoutExpired(command, 600)
        return "a==1.0" if command[0] == "uv" else python("a", flawed="" if "known.txt" not in command[-1] else "a")

    results = Audit(tmp_path, "uv", run).results()
    assert [each.what for each in results][:: len(LOCKS) + 1] == ["uv.lock", "package-lock.json"]
    assert [each.code for each in results] == [0] * (1 + len(LOCKS)) + [2]


def test_given_the_repositorys_lock_files_when_listed_then_each_is_asked_about() -> None:
    found = {file for folder in ("emulator", "infra", "tests") for file in (PROJECT_ROOT / folder).rglob("*.lock")}
    assert found == set(LOCKS)


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: f"{lock.parent.name}/{lock.stem}")
def test_given_a_lock_of_a_tool_when_read_then_each_package_has_one_version_and_hashes(lock: Path) -> None:
    entries = lock.read_text("utf-8").replace("\\\n", " ").splitlines()
    packages = [entry for entry in entries if entry and not entry.lstrip().startswith("#")]
    assert len(packages) > 5
    assert [entry for entry in packages if "==" not in entry.split()[0] or "--hash=sha256:" not in entry] == []


def test_given_the_lock_of_node_when_read_then_each_package_has_a_hash() -> None:
    packages = json.loads((PROJECT_ROOT / "package-lock.json").read_text("utf-8"))["packages"]
    assert [
        name for name, each in packages.items() if name and "integrity" not in each and not each.get("inBundle")
    ] == []
