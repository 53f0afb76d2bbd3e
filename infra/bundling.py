"""Builds the layer's folder with uv, without Docker: the same pinned wheels give the same asset."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from infra.bytecode import compile_site, compiler
from infra.overlay import Overlay
from infra.places import BUILD_FOLDER, INSTALLED, PACKAGE_SOURCE, PROJECT_ROOT
from infra.rules_package import NOT_DEPLOYED, RulesPackage
from infra.sbom import SBOM_FILE, bill_of_materials, requirements
from trainguard.pricing.table import PACKAGED_NAME

# The functions' requirements: exact versions, a hash for each file; `make lock` writes them.
LOCK = Path(__file__).with_name("layer.pylock.toml")

_MADE_BY = ("bundling.py", "bytecode.py", "compile_all.py", "pyodide.mjs", "sbom.py")
_UNUSED_FOLDERS = ("tests", "f2py", "__pycache__")
_UNUSED_FILES = ("*.pyi", "*.pyc", "*.pxd", "*.a", "*.h", "*_tests.*.so", "swagger-ui*")
_INSTALLER_NOTES = ("RECORD", "INSTALLER", "REQUESTED")


class BundlingError(RuntimeError):
    """The layer cannot be built; the message says what would help."""


def layer_folder(
    overlay: Overlay,
    build_folder: Path = BUILD_FOLDER,
    *,
    rules_package: RulesPackage | None = None,
    prices: bytes | None = None,
) -> Path:
    """Return the layer's folder for ``overlay``, built once for the same inputs.

    Raises BundlingError when uv is missing, or no wheel with the locked hash fits; BytecodeError.
    """
    lock = LOCK.read_text("utf-8")
    finished = build_folder / _input_hash(overlay, lock, rules_package, prices)
    if finished.is_dir():
        return finished
    build_folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=build_folder, prefix="unfinished-") as folder:
        layer = Path(folder) / "layer"
        site = layer / "python"
        site.mkdir(parents=True)
        _install(lock, overlay, site)
        own_rules = rules_package.name if rules_package else None
        (layer / SBOM_FILE).write_text(bill_of_materials(site, lock, overlay, own_rules=own_rules), encoding="utf-8")
        _trim(site)
        for file in _source_files():
            target = site / "trainguard" / file.relative_to(PACKAGE_SOURCE)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, target)
        if prices is not None:
            (site / "trainguard" / "pricing" / PACKAGED_NAME).write_bytes(prices)
        if rules_package is not None:
            rules_package.copy_to(site)
        compile_site(site, overlay.python_version)
        try:
            layer.rename(finished)
        except OSError:
            # Another process built the same layer in the meantime; both hold the same bytes.
            if not finished.is_dir():
                raise
    return finished


def find_uv() -> str:
    """Return uv's path: ``$UV``, the project's ``.tools`` folder, beside this Python, or the search path."""
    beside = Path(sys.executable).with_name("uv")
    candidates = (os.environ.get("UV"), str(PROJECT_ROOT / ".tools" / "bin" / "uv"), str(beside), "uv")
    for candidate in candidates:
        if candidate and (found := shutil.which(candidate)):
            return found
    helps = "install 'trainguard[cdk]'" if INSTALLED else "run `make install`, which puts it into .tools/bin"
    raise BundlingError(f"uv was not found: {helps}, or set UV to its path")


def _install(lock: str, overlay: Overlay, target: Path) -> None:
    listing = target.parent.parent / "pylock.toml"
    listing.write_text(lock, encoding="utf-8")
    platform = ["--python-version", overlay.python_version, "--python-platform", overlay.wheel_platform]
    wheels = ["--require-hashes", "--only-binary", ":all:", "--no-deps", "--python", sys.executable]
    _run_uv(["pip", "install", "--quiet", "--target", str(target), *platform, *wheels, "-r", str(listing)])


def _trim(site: Path) -> None:
    """Remove what no function imports, and scripts and `RECORD`, whose bytes depend on this machine."""
    shutil.rmtree(site / "bin", ignore_errors=True)
    (site / ".lock").unlink(missing_ok=True)
    for folder in site.glob("*.dist-info"):
        for name in _INSTALLER_NOTES:
            (folder / name).unlink(missing_ok=True)
    for name in _UNUSED_FOLDERS:
        for folder in list(site.rglob(name)):
            shutil.rmtree(folder)
    for pattern in _UNUSED_FILES:
        for file in list(site.rglob(pattern)):
            file.unlink()


def _input_hash(overlay: Overlay, lock: str, rules_package: RulesPackage | None, prices: bytes | None) -> str:
    digest = hashlib.sha256()
    made_by = ((Path(__file__).parent / name).read_text("utf-8") for name in _MADE_BY)
    python = overlay.python_version
    for part in (lock, python, overlay.wheel_platform, compiler(python), *requirements(), *made_by):
        digest.update(part.encode() + b"\0")
    for file in _source_files():
        digest.update(file.relative_to(PACKAGE_SOURCE).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    if prices is not None:
        digest.update(b"prices\0" + prices + b"\0")
    if rules_package is not None:
        digest.update(rules_package.marker.encode())
        for file in rules_package.files:
            name = file.relative_to(rules_package.folder).as_posix()
            digest.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:32]


def _source_files() -> list[Path]:
    files = (file for file in PACKAGE_SOURCE.rglob("*") if file.is_file())
    return sorted(
        file
        for file in files
        if "__pycache__" not in file.parts
        and file.suffix != ".pyc"
        and file.relative_to(PACKAGE_SOURCE).parts[0] not in NOT_DEPLOYED
    )


def _run_uv(arguments: list[str]) -> str:
    command = [find_uv(), "--no-config", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 -- no shell, own words
    except subprocess.CalledProcessError as error:
        raise BundlingError(f"uv {' '.join(arguments[:2])} failed: {error.stderr.strip()}") from error
    return done.stdout
