"""Synthesises the application in a process of its own, which has no credentials and must not find Docker."""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CDK = ROOT / "node_modules" / ".bin" / "cdk"
DOCKER_CALLS = "docker-calls.txt"

# What a private home would hide from uv and jsii: none of it holds credentials of AWS.
_TOOLS_IN_HOME = {
    "UV_CACHE_DIR": ".cache/uv",
    "JSII_RUNTIME_PACKAGE_CACHE_ROOT": ".cache/aws/jsii/package-cache",
    "XDG_CONFIG_HOME": ".config",
}

_UNSUPPORTED_NODES = "16,18,19,20,21,23,25"


class SynthesisError(Exception):
    """The application ended with an error; the text is all that it said."""


def run_all(folder: Path, root: Path) -> None:
    """Synthesise the application of the checkout ``root`` as `variants` says."""
    command = [sys.executable, "-m", "tests.infra.variants", str(folder)]
    _run(command, bare_environment(folder.with_name(f"{folder.name}-home")), root)


def run_cli(folder: Path, source: Path) -> None:
    """Run ``cdk synth`` in a copy of the checkout ``source`` in which no layer was built before.

    What it printed stands in ``folder/said.txt``, the assembly in ``folder/assembly``.
    """
    root = copy_checkout(folder / "checkout", source)
    command = [str(CDK), "synth", "--quiet", "--output", str(folder / "assembly"), "--no-notices", "--no-lookups"]
    (folder / "said.txt").write_text(_run(command, bare_environment(folder / "home"), root), encoding="utf-8")


def copy_checkout(target: Path, source: Path = ROOT) -> Path:
    """Copy what a synthesis reads to another place, in which nothing was built before."""
    for name in ("infra", "lambdas", "rules_layer", "tests/infra"):
        shutil.copytree(source / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("cdk.json", "pyproject.toml", "uv.lock"):
        shutil.copy2(source / name, target / name)
    for name in (".venv", ".tools", "node_modules"):
        if (ROOT / name).exists():
            (target / name).symlink_to(ROOT / name, target_is_directory=True)
    return target


def copy_with_layers(target: Path) -> None:
    """Copy what a synthesis reads, and let it use the layers that this checkout has."""
    layers = ROOT / "build" / "layers"
    layers.mkdir(parents=True, exist_ok=True)
    copy_checkout(target)
    (target / "build").mkdir()
    (target / "build" / "layers").symlink_to(layers, target_is_directory=True)


def read_json(path: Path) -> dict[str, object]:
    """Return the object that a file holds."""
    document: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
    return document


def docker_calls(home: Path) -> list[str]:
    """Return what Docker was asked for by the synthesis whose home is ``home``."""
    calls = home / DOCKER_CALLS
    return calls.read_text(encoding="utf-8").splitlines() if calls.exists() else []


def bare_environment(home: Path) -> dict[str, str]:
    """Return an environment without credentials, in which ``docker`` fails and says that it was called."""
    tools = home / "bin"
    tools.mkdir(parents=True, exist_ok=True)
    docker = tools / "docker"
    docker.write_text(f'#!/bin/sh\necho "$@" >> "{home / DOCKER_CALLS}"\nexit 1\n', encoding="utf-8")
    docker.chmod(docker.stat().st_mode | stat.S_IXUSR)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "CDK_"))}
    own = {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "AWS_EC2_METADATA_DISABLED": "true",
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": _UNSUPPORTED_NODES,
    }
    return {name: str(Path.home() / folder) for name, folder in _TOOLS_IN_HOME.items()} | kept | own


def _run(command: list[str], environment: Mapping[str, str], root: Path) -> str:
    done = subprocess.run(
        command, env=dict(environment), cwd=root, capture_output=True, text=True, check=False, timeout=1800
    )
    if done.returncode:
        raise SynthesisError(done.stdout + done.stderr)
    return done.stdout + done.stderr
