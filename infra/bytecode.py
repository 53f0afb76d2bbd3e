"""Compiles the layer's modules ahead of time: a function that starts cold reads bytecode and compiles nothing.

Bytecode fits one minor version of Python, and its bytes one patch of that. What goes to AWS is compiled by Pyodide,
which `package-lock.json` pins; a layer for an emulator by this machine's Python. See
`docs/decisions/0016-the-layers-bytecode.md`.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from infra.overlay import AWS

_INFRA = Path(__file__).resolve().parent
PROGRAM = _INFRA / "compile_all.py"
PYODIDE_RUNNER = _INFRA / "pyodide.mjs"
PYODIDE = _INFRA.parent / "node_modules" / "pyodide" / "package.json"


class BytecodeError(RuntimeError):
    """The layer's modules cannot be compiled; the message says which, or what is missing."""


def compiler(python_version: str) -> str:
    """Return the full version of the Python that compiles; raises BytecodeError without Pyodide."""
    if python_version != AWS.python_version:
        return f"CPython {sys.version}"
    try:
        return f"Pyodide {json.loads(PYODIDE.read_text('utf-8'))['version']}"
    except FileNotFoundError:
        raise BytecodeError("Pyodide was not found in node_modules: run `make install`, which puts it there") from None


def compile_site(site: Path, python_version: str) -> None:
    """Write unchecked bytecode beside each module below ``site``; raises BytecodeError."""
    command = [*_python(python_version), str(PROGRAM), str(site), python_version]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 -- no shell, own words
    if done.returncode != 0:
        reason = done.stdout.strip() or done.stderr.strip()
        raise BytecodeError(f"Python {python_version}'s bytecode: {reason}")


def _python(python_version: str) -> list[str]:
    if python_version != AWS.python_version:
        return [sys.executable, "-I"]
    node = shutil.which("node")
    if node is None:
        raise BytecodeError("node was not found: install Node.js 20 or newer, which the CDK needs as well")
    return [node, str(PYODIDE_RUNNER)]
