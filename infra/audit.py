"""Asks the databases of known flaws about every locked package; exit code 1: a flaw, 2: a database without answer."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from infra.places import PROJECT_ROOT

FOLDER = PROJECT_ROOT / "build" / "audit"
AUDIT_LOCK = PROJECT_ROOT / "infra" / "audit.lock"
LOCKS = (
    AUDIT_LOCK,
    PROJECT_ROOT / "emulator" / "lambda-runtime.lock",
    PROJECT_ROOT / "emulator" / "requirements.lock",
    PROJECT_ROOT / "tests" / "clusters" / "requirements.lock",
    PROJECT_ROOT / "tests" / "tools" / "requirements.lock",
    PROJECT_ROOT / "tests" / "torch" / "requirements.lock",
)

KNOWN_PYTHON = "jinja2==2.11.2\n"
KNOWN_NODE = {
    "name": "control",
    "version": "1.0.0",
    "lockfileVersion": 3,
    "packages": {"": {"dependencies": {"lodash": "4.17.15"}}, "node_modules/lodash": {"version": "4.17.15"}},
}

_TIMEOUT_S = 600
_MOST_SHOWN = 5

# Runs a command in a folder and returns its output; raises OSError or subprocess.SubprocessError.
Run = Callable[[Sequence[str], Path], str]


@dataclass(frozen=True, slots=True)
class AuditAnswer:
    """A database's answer for a lock file: ``flaws``, how many packages it ``knows``, and which it does not."""

    flaws: tuple[str, ...] = ()
    knows: int = 0
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """The result for one lock file; ``code`` is its exit code."""

    what: str
    text: str
    code: int


def python_answer(printed: str) -> AuditAnswer:
    """Read the JSON of pip-audit; raises ValueError."""
    packages = _document(printed).get("dependencies", [])
    flaws = tuple(
        f"{each['name']} {each['version']}: {flaw['id']}" for each in packages for flaw in each.get("vulns", [])
    )
    unknown = tuple(each["name"] for each in packages if "skip_reason" in each)
    return AuditAnswer(flaws, len(packages) - len(unknown), unknown)


def node_answer(printed: str) -> AuditAnswer:
    """Read the JSON of npm audit; raises ValueError."""
    document = _document(printed)
    if "vulnerabilities" not in document:
        raise ValueError(str(document.get("message") or document.get("error") or "no vulnerabilities in the answer"))
    flaws = tuple(f"{name}: {each['severity']}" for name, each in document["vulnerabilities"].items())
    return AuditAnswer(flaws, int(document["metadata"]["dependencies"]["total"]))


def judged(what: str, asked: Callable[[], AuditAnswer], control: Callable[[], AuditAnswer]) -> Result:
    """Ask about a lock file; a database that does not know the control's flaw, or all packages, gives no all-clear."""
    try:
        answer = asked()
        if answer.flaws:
            return Result(what, f"{len(answer.flaws)} known flaws: {_listed(answer.flaws)}", 1)
        if not control().flaws:
            return Result(what, "not answered: the database does not know an old flaw that it is asked about", 2)
    except (ValueError, KeyError, OSError, subprocess.SubprocessError) as fault:
        return Result(what, f"not answered: {type(fault).__name__}: {str(fault)[:300]}", 2)
    if answer.unknown:
        return Result(what, f"not answered for {len(answer.unknown)} packages: {_listed(answer.unknown)}", 2)
    return Result(what, f"no known flaw in {answer.knows} packages", 0)


def _name(lock: Path) -> str:
    return lock.relative_to(PROJECT_ROOT).as_posix()


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    return ", ".join(names[:_MOST_SHOWN]) + more


def _document(printed: str) -> dict[str, Any]:
    document = json.loads(printed)
    if not isinstance(document, dict):
        raise ValueError("the answer is no JSON object")
    return document


def _ran(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(  # noqa: S603 - commands of this module
        command, cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    if not done.stdout.strip():
        raise OSError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}")
    return done.stdout


def results(folder: Path, uv: str, run: Run = _ran) -> list[Result]:
    """Ask about the project's lock files; ``run`` runs commands, ``uv`` is the command uv."""

    def python(requirements: Path, how: str) -> AuditAnswer:
        tool = str(folder / "env" / "bin" / "pip-audit")
        quiet = ["--disable-pip", "--progress-spinner", "off", "--format", "json"]
        return python_answer(run([tool, how, *quiet, "--requirement", str(requirements)], folder))

    def exported() -> AuditAnswer:
        every = ["--frozen", "--all-packages", "--all-groups", "--all-extras", "--no-emit-workspace"]
        listed = run([uv, "export", "--quiet", *every, "--format", "requirements-txt"], PROJECT_ROOT)
        (folder / "uv.lock.txt").write_text(listed, "utf-8")
        return python(folder / "uv.lock.txt", "--require-hashes")

    def node(of: Path) -> AuditAnswer:
        return node_answer(run(["npm", "audit", "--json", "--package-lock-only"], of))

    (folder / "known.txt").write_text(KNOWN_PYTHON, "utf-8")
    (folder / "package.json").write_text(json.dumps({"dependencies": {"lodash": "4.17.15"}}), "utf-8")
    (folder / "package-lock.json").write_text(json.dumps(KNOWN_NODE), "utf-8")
    known = partial(python, folder / "known.txt", "--no-deps")
    return [
        judged("uv.lock", exported, known),
        *(judged(_name(lock), partial(python, lock, "--require-hashes"), known) for lock in LOCKS),
        judged("package-lock.json", partial(node, PROJECT_ROOT), partial(node, folder)),
    ]


def main() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    found = results(FOLDER, os.environ.get("UV", "uv"))
    for each in found:
        sys.stdout.write(f"{each.what:32}{each.text}\n")
    codes = {each.code for each in found}
    return 1 if 1 in codes else max(codes)


if __name__ == "__main__":
    sys.exit(main())
