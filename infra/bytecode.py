"""Compiles the layer's modules ahead of time: a function that starts cold reads bytecode and compiles nothing.

Bytecode fits one minor version of Python, and its bytes one patch of that. What goes to AWS is compiled by Pyodide,
which `package-lock.json` pins; a layer for an emulator by this machine's Python, one in an application of others that
has no Pyodide by uv's. See `docs/decisions/0016-the-layers-bytecode.md`.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from infra.overlay import AWS
from infra.places import INSTALLED, PROJECT_ROOT

_INFRA = Path(__file__).resolve().parent
PROGRAM = _INFRA / "compile_all.py"
PYODIDE_RUNNER = _INFRA / "pyodide.mjs"
PYODIDE = PROJECT_ROOT / "node_modules" / "pyodide" / "package.json"
PYODIDE_VERSION = "0.29.5"


class BytecodeError(RuntimeError):
    """The layer's modules cannot be compiled; the message says which, or what is missing."""


def compiler(python_version: str) -> str:
    """Return the full version of the Python that compiles; raises BytecodeError without Pyodide."""
    if python_version != AWS.python_version or _by_uv():
        return _run(python_version, "-VV")
    try:
        return f"Pyodide {json.loads(PYODIDE.read_text('utf-8'))['version']}"
    except FileNotFoundError:
        raise BytecodeError("Pyodide was not found in node_modules: run `make install`, which puts it there") from None


def compile_site(site: Path, python_version: str) -> None:
    """Write unchecked bytecode beside each module below ``site``; raises BytecodeError."""
    _run(python_version, str(PROGRAM), str(site), python_version)


def _run(python_version: str, *arguments: str) -> str:
    command = [*_python(python_version), *arguments]
    done = subprocess.run(  # noqa: S603 -- no shell, own words
        command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        reason = done.stdout.strip() or done.stderr.strip()
        helps = f"; npm install pyodide@{PYODIDE_VERSION} helps where uv finds no Python" if _by_uv() else ""
        raise BytecodeError(f"Python {python_version}'s bytecode: {reason}{helps}")
    return done.stdout


def _by_uv() -> bool:
    """Whether an application of others has no Pyodide, but uv, which fetches a Python that the machine lacks."""
    return INSTALLED and not PYODIDE.is_file()


def _python(python_version: str) -> list[str]:
    if _by_uv():
        uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
        if uv is None:
            raise BytecodeError("uv was not found: install 'trainguard[cdk]'")
        return [uv, "run", "--quiet", "--no-config", "--no-project", "--python", python_version, "python", "-I"]
    if python_version != AWS.python_version:
        return [sys.executable, "-I"]
    node = shutil.which("node")
    if node is None:
        raise BytecodeError("node was not found: install Node.js 20 or newer, which the CDK needs as well")
    return [node, str(PYODIDE_RUNNER)]
