"""The layer: what it holds, how large it is, and where uv is looked for."""

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from infra import bundling, overlay
from infra.bundling import BundlingError, find_uv, layer_folder
from infra.places import PACKAGE_SOURCE, PROJECT_ROOT
from infra.release.folder import write_archive
from infra.rules_package import NOT_DEPLOYED

# Lambda takes 250 MB; numpy and its BLAS are most of it, what reads tensors is 2 MB.
_LIMIT_MB = 72


@pytest.fixture(scope="module")
def site() -> Path:
    """Return the folder from which the functions import, for AWS."""
    return layer_folder(overlay.AWS) / "python"


def test_unzipped_layer_is_within_the_lambda_limit(site: Path) -> None:
    size = sum(file.stat().st_size for file in site.rglob("*") if file.is_file())
    assert size <= _LIMIT_MB * 1_000_000


def test_layer_holds_only_rules_and_pinned_dependencies(site: Path) -> None:
    packages = {entry.name for entry in site.iterdir() if not entry.name.endswith((".dist-info", "__pycache__"))}
    assert packages == {
        "aws_lambda_powertools",
        "google",
        "google_crc32c",
        "google_crc32c.libs",
        "jinja2",
        "jmespath",
        "markupsafe",
        "msgspec",
        "numpy",
        "numpy.libs",
        "trainguard",
        "typing_extensions.py",
        "tzdata",
    }


def test_layer_has_no_command_line(site: Path) -> None:
    held = {entry.name for entry in (site / "trainguard").iterdir()}
    assert {"rules", "engine", "aws", "pricing", "__init__.py"} <= held
    assert not held & set(NOT_DEPLOYED)
    assert (site / "trainguard" / "pricing" / "prices.json").exists()


def test_layer_has_all_files_of_the_report_page(site: Path) -> None:
    made_of = {
        file.relative_to(PACKAGE_SOURCE)
        for folder in ("html", "assets")
        for file in (PACKAGE_SOURCE / "report" / folder).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert {file.suffix for file in made_of} >= {".py", ".j2", ".css", ".js"}
    assert all((site / "trainguard" / file).is_file() for file in made_of)


def test_evaluator_loads_no_templates_or_tensor_decoders() -> None:
    """A cold start pays for what it imports: pages are made elsewhere, and most jobs save no tensors."""
    late = "{'jinja2', 'google.protobuf', 'google_crc32c'}"
    code = ["import sys"]
    for name in ("evaluate_objects", "scheduler", "reconcile_job", "job_lifecycle"):
        source = (PROJECT_ROOT / "lambdas" / name / "handler.py").read_text(encoding="utf-8")
        code += [line for line in source.splitlines() if line.startswith(("from trainguard", "import trainguard"))]
        code.append(f"if {late} & set(sys.modules): sys.exit('{name}')")
    run = [sys.executable, "-c", "\n".join(code)]
    done = subprocess.run(run, cwd=PROJECT_ROOT / "rules_layer", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_changed_command_line_keeps_the_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "trainguard"
    (source / "cli").mkdir(parents=True)
    (source / "rule.py").write_text("threshold = 70\n", encoding="utf-8")
    monkeypatch.setattr(bundling, "PACKAGE_SOURCE", source)
    monkeypatch.setattr(bundling, "_install", lambda *_: None)
    monkeypatch.setattr(bundling, "compile_site", lambda *_: None)
    before = layer_folder(overlay.AWS, tmp_path / "build")
    (source / "cli" / "main.py").write_text("options = 7\n", encoding="utf-8")
    assert layer_folder(overlay.AWS, tmp_path / "build") == before


@pytest.mark.parametrize(("architecture", "machine"), [("arm64", "aarch64"), ("x86_64", "x86_64")])
def test_compiled_modules_of_the_layer_fit_the_functions(
    architecture: str, machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundling, "compile_site", lambda *_: None)
    modules = list(layer_folder(overlay.on_aws(architecture), tmp_path).rglob("*.cpython-*.so"))
    tag = overlay.AWS.python_version.replace(".", "")
    assert modules
    assert all(f".cpython-{tag}-{machine}-linux-gnu" in module.name for module in modules)


def test_layer_is_independent_of_its_build_location(site: Path) -> None:
    unstable = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "bin"}
    assert not [entry for entry in site.rglob("*") if entry.name in unstable]


def test_same_inputs_in_another_folder_give_the_same_bytes(site: Path, elsewhere: Path, tmp_path: Path) -> None:
    again = elsewhere / "checkout" / "build" / "layers" / site.parent.name
    assert digests(again) == digests(site.parent)
    archives = [tmp_path / "first.zip", tmp_path / "second.zip"]
    for archive, layer in zip(archives, (site.parent, again), strict=True):
        write_archive(archive, layer)
    assert archives[0].read_bytes() == archives[1].read_bytes()


def digests(layer: Path) -> dict[str, str]:
    """Return the hash of each file of a layer."""
    files = sorted(file for file in layer.rglob("*") if file.is_file())
    return {file.relative_to(layer).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_wheel_with_a_hash_unlike_the_lock_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = bundling.LOCK.read_text("utf-8")
    wheel = re.search(r"jinja2-[0-9.]+-py3-none-any\.whl.*?sha256 = \"([0-9a-f]{64})", lock)
    assert wheel
    other = "0" * 64
    (tmp_path / "pylock.toml").write_text(lock.replace(wheel[1], other), "utf-8")
    monkeypatch.setattr(bundling, "LOCK", tmp_path / "pylock.toml")
    with pytest.raises(BundlingError, match=r"(?s)uv pip install failed: .*[Hh]ash mismatch for `jinja2"):
        layer_folder(overlay.AWS, tmp_path)


def test_dependency_without_a_hash_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = re.sub(r", hashes = \{ sha256 = \"[0-9a-f]+\" \}", "", bundling.LOCK.read_text("utf-8"))
    (tmp_path / "pylock.toml").write_text(lock, "utf-8")
    monkeypatch.setattr(bundling, "LOCK", tmp_path / "pylock.toml")
    with pytest.raises(BundlingError, match=r"(?s)uv pip install failed: .*hash"):
        layer_folder(overlay.AWS, tmp_path)


def test_finished_layer_is_not_rebuilt(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(requirements: str, chosen: overlay.Overlay, target: Path) -> None:
        raise AssertionError(f"installs {requirements} for {chosen} into {target}")

    monkeypatch.setattr(bundling, "_install", refuse)
    assert layer_folder(overlay.AWS) / "python" == site


@pytest.mark.parametrize(
    "other",
    [
        overlay.Overlay(python_version="3.13", architecture="arm64", wheel_platform="same", batching_window_s=20),
        overlay.Overlay(python_version="3.14", architecture="x86_64", wheel_platform="other", batching_window_s=20),
    ],
)
def test_other_python_or_platform_builds_another_layer(
    other: overlay.Overlay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundling, "_install", lambda *_: None)
    monkeypatch.setattr(bundling, "compile_site", lambda *_: None)
    first = overlay.Overlay(python_version="3.14", architecture="arm64", wheel_platform="same", batching_window_s=20)
    assert layer_folder(first, tmp_path) != layer_folder(other, tmp_path)


def test_changed_source_builds_another_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "trainguard"
    source.mkdir()
    (source / "rule.py").write_text("threshold = 70\n", encoding="utf-8")
    monkeypatch.setattr(bundling, "PACKAGE_SOURCE", source)
    monkeypatch.setattr(bundling, "_install", lambda *_: None)
    monkeypatch.setattr(bundling, "compile_site", lambda *_: None)
    before = layer_folder(overlay.AWS, tmp_path / "build")
    (source / "rule.py").write_text("threshold = 71\n", encoding="utf-8")
    after = layer_folder(overlay.AWS, tmp_path / "build")
    assert before != after
    assert (after / "python" / "trainguard" / "rule.py").read_text(encoding="utf-8") == "threshold = 71\n"


def test_uv_variable_takes_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = tmp_path / "uv"
    chosen.write_text("#!/bin/sh\n", encoding="utf-8")
    chosen.chmod(0o755)
    monkeypatch.setenv("UV", str(chosen))
    assert find_uv() == str(chosen)


def test_lock_of_the_layer_is_that_of_the_project() -> None:
    project = ["--no-dev", "--no-emit-project", "--extra", "stack", "--no-header", "--format", "pylock.toml"]
    command = [find_uv(), "export", "--frozen", *project]
    done = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == bundling.LOCK.read_text("utf-8"), "run `make lock`"


def test_missing_uv_error_says_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UV", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(bundling, "PROJECT_ROOT", tmp_path)
    with pytest.raises(BundlingError, match="run `make install`"):
        find_uv()


def test_dependency_without_a_wheel_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = 'lock-version = "1.0"\ncreated-by = "uv"\n[[packages]]\nname = "nowhere"\nversion = "1.0"\nwheels = []\n'
    (tmp_path / "pylock.toml").write_text(lock, "utf-8")
    monkeypatch.setattr(bundling, "LOCK", tmp_path / "pylock.toml")
    with pytest.raises(BundlingError, match=r"uv pip install failed: .*nowhere"):
        layer_folder(overlay.AWS, tmp_path / "build")
    assert not [entry for entry in (tmp_path / "build").iterdir() if not entry.name.startswith("unfinished-")]
