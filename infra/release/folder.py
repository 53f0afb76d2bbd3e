"""Writes a release: one folder with all that a deployment without CDK needs, and an archive of it."""

import hashlib
import shutil
import stat
import subprocess
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

from infra.bundling import find_uv
from infra.config import DeploymentConfig
from infra.places import PROJECT_ROOT
from infra.release.template import LAYER, release_template
from infra.sbom import SBOM_FILE

TEMPLATE = "trainguard.template.json"
ASSETS = "assets"
SUMS = "SHA256SUMS"
# What brings the collector to clusters, and the module of Terraform.
DEPLOY = "deploy"

_STEPS = Path(__file__).with_name("steps.md")
_KEPT = "The bucket, the tables and the logs stay, with their data; delete them by hand if you do not want them."
_DELETED = "Empty the stack's own bucket before: CloudFormation deletes no bucket that holds objects."


class ReleaseError(RuntimeError):
    """The package cannot be built; the message says why."""


def project_version() -> str:
    project: dict[str, str] = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return project["version"]


def write_release(out: Path, context: Mapping[str, object]) -> Path:
    """Write the release and its archive below ``out``, return its folder; DeploymentConfigError, ReleaseError."""
    config = DeploymentConfig.from_context(context)
    target = out / f"trainguard-{project_version()}"
    shutil.rmtree(target, ignore_errors=True)
    (target / ASSETS).mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=out, prefix="unfinished-") as staging:
        template, assets = release_template(config, Path(staging))
        (target / TEMPLATE).write_text(template, encoding="utf-8")
        for archive, folder in assets.values():
            write_archive(target / ASSETS / archive, folder)
        shutil.copyfile(assets[LAYER][1] / SBOM_FILE, target / SBOM_FILE)
    _build(target, PROJECT_ROOT)
    _build(target, PROJECT_ROOT / "collector", "--wheel")
    shutil.copytree(PROJECT_ROOT / DEPLOY, target / DEPLOY, ignore=shutil.ignore_patterns("dist", "__pycache__"))
    (target / DEPLOY / "hosts" / "VERSION").write_text(f"{project_version()}\n", encoding="utf-8")
    (target / "README.md").write_text(_steps(target, config, context), encoding="utf-8")
    (target / SUMS).write_text(sums(target), encoding="utf-8")
    write_archive(out / f"{target.name}.zip", target, below=f"{target.name}/")
    return target


def _build(target: Path, project: Path, *kinds: str) -> None:
    command = [find_uv(), "build", "--quiet", "--no-create-gitignore", *kinds, "--out-dir", str(target), str(project)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 -- no shell, own words
    if done.returncode != 0:
        raise ReleaseError(f"uv build failed: {done.stderr.strip()}")


def _steps(target: Path, config: DeploymentConfig, context: Mapping[str, object]) -> str:
    (wheel,), (collector,) = target.glob("trainguard-*.whl"), target.glob("trainguard_collector-*.whl")
    (sdist,) = target.glob("*.tar.gz")
    built = [f"`-c {name}={value}`" for name, value in sorted(context.items()) if name in DeploymentConfig.names()]
    return _STEPS.read_text("utf-8").format(
        version=project_version(),
        template=TEMPLATE,
        wheel=wheel.name,
        sdist=sdist.name,
        collector=collector.name,
        stays=_KEPT if config.retain_data else _DELETED,
        built=f"Built with {', '.join(built)}." if built else "Built with the default settings.",
    )


_BEGINNING = (1980, 1, 1, 0, 0, 0)
_UNIX = 3
_LEVEL = 6
_COMPRESSED = frozenset({".gz", ".whl", ".zip"})
_READABLE = (stat.S_IFREG | 0o644) << 16


def write_archive(target: Path, folder: Path, *, below: str = "") -> None:
    """Write a folder as a ZIP archive, the same bytes for the same files and zlib; ``below`` ends in a slash."""
    files = sorted((file.relative_to(folder).as_posix(), file) for file in folder.rglob("*") if file.is_file())
    with zipfile.ZipFile(target, "w") as archive:
        for name, file in files:
            entry = zipfile.ZipInfo(f"{below}{name}", _BEGINNING)
            entry.create_system, entry.external_attr = _UNIX, _READABLE
            entry.compress_type = zipfile.ZIP_STORED if file.suffix in _COMPRESSED else zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes(), compresslevel=_LEVEL)


def sums(folder: Path) -> str:
    """Return a line for each file of a folder, as ``sha256sum --check`` reads it."""
    files = sorted((file.relative_to(folder).as_posix(), file) for file in folder.rglob("*") if file.is_file())
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {name}\n" for name, file in files)
