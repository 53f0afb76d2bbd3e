"""Runs the fixed commands of this package: uv, LocalStack and the CDK command line."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO


def run(
    command: Sequence[str | Path],
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    timeout_s: float = 600.0,
) -> subprocess.CompletedProcess[str]:
    """Run `command`; a failure is the caller's to judge. Raises subprocess.TimeoutExpired after `timeout_s`."""
    return subprocess.run(  # noqa: S603 -- an argument list without a shell, made by this package
        [str(part) for part in command],
        env=None if environment is None else dict(environment),
        cwd=folder,
        timeout=timeout_s,
        capture_output=True,
        text=True,
        check=False,
    )


def start(
    command: Sequence[str | Path], *, environment: Mapping[str, str], output: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start `command` in a process group of its own, its stdin held open by this process."""
    return subprocess.Popen(  # noqa: S603 -- an argument list without a shell, made by this package
        [str(part) for part in command],
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
