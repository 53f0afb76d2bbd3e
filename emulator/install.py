"""Makes what the emulator runs in: ``python -m emulator.install``.

LocalStack lives in ``.emulator/venv``, because it pins older versions of what the project uses; functions find
``.emulator/lambda-runtime``, so that what one lacks in its layer is missing here as on AWS. Each part is rebuilt when
its lock file, its sources or the Python changes.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from emulator import commands
from emulator.errors import InstallError

HERE = Path(__file__).parent
LOCK_FILE = HERE / "requirements.lock"
RUNTIME_LOCK_FILE = HERE / "lambda-runtime.lock"
PLUGIN = HERE / "plugin"
HOME = HERE.parent / ".emulator"
SUPPORTED = ((3, 11), (3, 12), (3, 13))


# What `install` has made: an interpreter with LocalStack, and the folder of the packages that every function finds.
Installation = tuple[Path, Path]


def install(*, home: Path = HOME) -> Installation:
    """Create or update what is not up to date under `home`; raises InstallError."""
    _check_python()
    environment = home / "venv"
    python = environment / "bin" / "python"
    runtime = home / "lambda-runtime"
    home.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(home / "install.lock"):
        packages = _Stamp(environment / "trainguard-packages", [LOCK_FILE])
        plugin = _Stamp(environment / "trainguard-plugin", _plugin_sources())
        if not packages.fits():
            uv = find_uv()
            _uv([uv, "venv", "--quiet", "--clear", "--python", sys.executable, environment])
            _uv([*_pip_install(uv, python), "--require-hashes", "--requirement", LOCK_FILE])
            packages.write()
        if not plugin.fits():
            _uv([*_pip_install(find_uv(), python), "--no-deps", "--no-build-isolation", "--reinstall", PLUGIN])
            plugin.write()
        functions = _Stamp(runtime / "trainguard-packages", [RUNTIME_LOCK_FILE])
        if not functions.fits():
            shutil.rmtree(runtime, ignore_errors=True)
            into_runtime = [*_pip_install(find_uv(), python), "--target", runtime]
            _uv([*into_runtime, "--require-hashes", "--requirement", RUNTIME_LOCK_FILE])
            functions.write()
    return python, runtime


def find_uv() -> str:
    """Return the path of uv: that of the variable ``UV``, else the one on PATH; raises InstallError."""
    found = shutil.which(os.environ.get("UV") or "uv")
    if found is None:
        raise InstallError(
            f"uv: not found (UV={os.environ.get('UV')!r}); put uv on PATH or its path into the variable UV"
        )
    return found


def _check_python() -> None:
    if sys.version_info[:2] not in SUPPORTED or sys.implementation.name != "cpython":
        here = f"{sys.implementation.name} {sys.version.split()[0]} ({sys.executable})"
        raise InstallError(f"python: {here} cannot run LocalStack 4.9.2; use CPython 3.11, 3.12 or 3.13")


def _plugin_sources() -> list[Path]:
    return [PLUGIN / "pyproject.toml", *sorted((PLUGIN / "trainguard_localstack").glob("*.py"))]


class _Stamp:
    """A file that says from which sources, and for which Python, a part of the environment was made."""

    def __init__(self, path: Path, sources: list[Path]) -> None:
        self._path = path
        digest = hashlib.sha256(f"{sys.version}\n{sys.base_prefix}\n".encode())
        for source in sources:
            digest.update(f"{source.name}\n".encode() + source.read_bytes())
        self._wanted = digest.hexdigest()

    def fits(self) -> bool:
        return self._path.exists() and self._path.read_text(encoding="utf-8") == self._wanted

    def write(self) -> None:
        self._path.write_text(self._wanted, encoding="utf-8")


@contextlib.contextmanager
def _one_at_a_time(lock: Path) -> Iterator[None]:
    """Let concurrent test sessions wait for one another rather than write the same environment."""
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _pip_install(uv: str, python: Path) -> list[str | Path]:
    return [uv, "pip", "install", "--quiet", "--python", python]


def _uv(command: list[str | Path]) -> None:
    result = commands.run(command)
    if result.returncode != 0:
        words = " ".join(str(part) for part in command)
        raise InstallError(f"`{words}` ended with {result.returncode}:\n{result.stderr.strip()[-4000:]}")


def main() -> int:
    started_s = time.monotonic()
    try:
        python, _ = install()
    except InstallError as error:
        sys.stderr.write(f"emulator.install: {error}\n")
        return 1
    sys.stdout.write(f"{python} ({time.monotonic() - started_s:.1f} s)\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
