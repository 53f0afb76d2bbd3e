"""Checks a deployment's own rules for the layer, in a process that sees the layer's modules alone."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import copy2

from infra.existing_resources import existing_resources
from infra.places import PROJECT_ROOT
from trainguard.rules.extension import MARKER

LAYER_PACKAGES = (
    "aws_lambda_powertools",
    "google",
    "google_crc32c",
    "jinja2",
    "jmespath",
    "markupsafe",
    "msgspec",
    "numpy",
    "trainguard",
    "typing_extensions",
    "tzdata",
)

# No function imports the command line and the kit for tests: their changes deploy nothing.
NOT_DEPLOYED = ("cli", "config", "gate", "local", "managed", "stragglers", "testing", "__main__.py")

MOST_BYTES = 5_000_000
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_COMPILED = frozenset({".so", ".pyd", ".dylib"})
_CHECK_S = 60


class RulesPackageError(ValueError):
    """A package of rules that cannot be deployed; the message says what is wrong with which."""

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(f"rules_package {str(folder)!r} cannot be used: {reason}")


@dataclass(frozen=True, slots=True)
class RulesPackage:
    """A package of rules that was checked: its name, its files below its folder, and the names of its rules."""

    name: str
    folder: Path
    files: tuple[Path, ...]
    rules: tuple[str, ...]

    @property
    def marker(self) -> str:
        """Source of the module by which the functions find the package."""
        return f'"""Written when the layer was built."""\n\nPACKAGE = {self.name!r}\nRULES = {self.rules!r}\n'

    def copy_to(self, site: Path) -> None:
        _copy(self.folder, self.files, site / self.name)
        (site / f"{MARKER}.py").write_text(self.marker, encoding="utf-8")


def read_rules_package(place: str) -> RulesPackage:
    """Return the package at a path relative to the project, or absolute; raises RulesPackageError."""
    folder = (PROJECT_ROOT / place).resolve()
    if not (folder / "__init__.py").is_file():
        raise RulesPackageError(folder, "expected a folder with an __init__.py in it")
    if not _NAME.fullmatch(folder.name):
        raise RulesPackageError(
            folder, f"its name {folder.name!r} is none in lower case: a letter, then letters, 0-9, _"
        )
    if folder.name in {*LAYER_PACKAGES, MARKER} or folder.name in existing_resources():
        raise RulesPackageError(folder, f"its name {folder.name!r} is taken by a module that the functions may import")
    files = _files(folder)
    return RulesPackage(folder.name, folder, files, _checked(folder, files))


def _files(folder: Path) -> tuple[Path, ...]:
    files = sorted(
        file
        for file in folder.rglob("*")
        if file.is_file()
        and "__pycache__" not in file.parts
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    )
    compiled = [file.name for file in files if file.suffix in _COMPILED]
    if compiled:
        raise RulesPackageError(folder, f"{compiled[0]} is compiled for this machine, expected Python sources")
    size = sum(file.stat().st_size for file in files)
    if size > MOST_BYTES:
        raise RulesPackageError(folder, f"it has {size:,} bytes, expected at most {MOST_BYTES:,}")
    return tuple(files)


def _copy(folder: Path, files: Sequence[Path], target: Path) -> None:
    for file in files:
        copied = target / file.relative_to(folder)
        copied.parent.mkdir(parents=True, exist_ok=True)
        copy2(file, copied)


def _checked(folder: Path, files: Sequence[Path]) -> tuple[str, ...]:
    with tempfile.TemporaryDirectory(prefix="trainguard-rules-") as staging:
        _copy(folder, files, Path(staging) / folder.name)
        command = [sys.executable, "-B", "-m", f"{__package__}.rules_check", staging, folder.name]
        try:
            done = subprocess.run(  # noqa: S603 -- no shell, own words
                command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False, timeout=_CHECK_S
            )
        except subprocess.TimeoutExpired as fault:
            raise RulesPackageError(folder, f"importing it took over {_CHECK_S} s") from fault
    last = done.stdout.strip().rpartition("\n")[2]
    if done.returncode != 0 or not last.startswith("rules: "):
        reason = done.stderr.strip().rpartition("\n")[2] or "its import ended the process"
        raise RulesPackageError(folder, reason)
    return tuple(last.removeprefix("rules: ").split(","))
