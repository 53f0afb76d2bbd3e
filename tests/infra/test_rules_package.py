"""A deployment's own rules on their way into the layer."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from aws_cdk import App, Stack

from infra import bundling, overlay
from infra.bundling import layer_folder
from infra.config import DeploymentConfig, DeploymentConfigError
from infra.constructs.layer import RulesLayer
from infra.places import PROJECT_ROOT
from infra.rules_package import LAYER_PACKAGES, RulesPackageError, read_rules_package

EXAMPLE = "examples/example_rules"
RULE = (PROJECT_ROOT / EXAMPLE / "host_memory.py").read_text("utf-8")
INIT = "from ours.host_memory import HostMemory\n\nRULES = (HostMemory(),)\n"


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """Write a package and return its folder."""
    for name, source in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")
    return folder


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for layers without dependencies."""
    monkeypatch.setattr(bundling, "_install", lambda *_: None)
    monkeypatch.setattr(bundling, "compile_site", lambda *_: None)
    return tmp_path / "build"


def test_example_package_has_its_name_and_rules() -> None:
    package = read_rules_package(EXAMPLE)
    assert (package.name, package.rules) == ("example_rules", ("HostMemory",))
    assert {file.name for file in package.files} == {"__init__.py", "host_memory.py"}


def test_layer_has_the_rules_of_a_package_and_nothing_else(tmp_path: Path, build: Path) -> None:
    files = {
        "__init__.py": INIT,
        "host_memory.py": RULE,
        "limits.json": "{}",
        "__pycache__/old.pyc": "",
        ".secrets/key": "hidden",
        "../beside.py": "",
    }
    package = read_rules_package(str(write(tmp_path / "ours", files)))
    site = layer_folder(overlay.AWS, build, rules_package=package) / "python"
    held = {file.relative_to(site).as_posix() for file in (site / "ours").rglob("*") if file.is_file()}
    assert held == {"ours/__init__.py", "ours/host_memory.py", "ours/limits.json"}
    assert not (site / "beside.py").exists()
    code = "from trainguard.rules.registry import RULE_NAMES, EXTENSION; print(RULE_NAMES[-1], dict(EXTENSION.faults))"
    assert run(site, code) == "HostMemory {}"
    (site / "ours" / "host_memory.py").write_text("import pandas\n", encoding="utf-8")
    broken = run(site, code)
    assert "HostMemory" in broken
    assert "pandas" in broken
    assert broken.startswith("Straggler")


def run(site: Path, code: str) -> str:
    """Return what code prints where functions would import from ``site`` first."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(site)!r}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_changed_package_builds_another_layer(tmp_path: Path, build: Path) -> None:
    folder = write(tmp_path / "ours", {"__init__.py": INIT, "host_memory.py": RULE})
    without = layer_folder(overlay.AWS, build)
    first = layer_folder(overlay.AWS, build, rules_package=read_rules_package(str(folder)))
    assert layer_folder(overlay.AWS, build, rules_package=read_rules_package(str(folder))) == first
    (folder / "host_memory.py").write_text(RULE.replace("90.0", "91.0"), encoding="utf-8")
    second = layer_folder(overlay.AWS, build, rules_package=read_rules_package(str(folder)))
    assert len({without, first, second}) == 3


@pytest.mark.parametrize(
    ("name", "files", "told"),
    [
        ("ours", {"host_memory.py": RULE}, "expected a folder with an __init__.py"),
        ("numpy", {"__init__.py": INIT}, "'numpy' is taken"),
        ("json", {"__init__.py": INIT}, "'json' is taken"),
        ("trainguard", {"__init__.py": INIT}, "'trainguard' is taken"),
        ("handler", {"__init__.py": INIT}, "'handler' is taken"),
        ("our-rules", {"__init__.py": INIT}, "none in lower case"),
        ("Ours", {"__init__.py": INIT}, "none in lower case"),
        ("ours", {"__init__.py": "", "fast.so": ""}, "fast.so is compiled"),
        ("ours", {"__init__.py": "x" * 5_000_001}, "at most 5,000,000"),
        ("ours", {"__init__.py": "import pandas\n"}, "No module named 'pandas' in the layer"),
        ("ours", {"__init__.py": "import boto3\n"}, "No module named 'boto3' in the layer"),
        ("ours", {"__init__.py": "from trainguard.cli import main\n"}, "No module named 'trainguard.cli'"),
        ("ours", {"__init__.py": "import tests.support\n"}, "No module named 'tests"),
        ("ours", {"__init__.py": "RULES = ("}, "SyntaxError"),
        ("ours", {"__init__.py": "import sys\nsys.exit(0)\n"}, "SystemExit"),
        ("ours", {"__init__.py": "import os\nos._exit(0)\n"}, "its import ended the process"),
        ("ours", {"__init__.py": "print('rules: A')\nRULES = ()\n"}, "a tuple of 1 to 8 rules"),
        (
            "ours",
            {"__init__.py": INIT, "host_memory.py": RULE.replace('"HostMemory"', '"LowGPUUtilization"')},
            "TrainGuard's own LowGPUUtilization",
        ),
    ],
)
def test_package_failing_in_the_functions_says_why(
    tmp_path: Path, name: str, files: Mapping[str, str], told: str
) -> None:
    folder = write(tmp_path / name, files)
    with pytest.raises(RulesPackageError) as caught:
        read_rules_package(str(folder))
    assert told in str(caught.value)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        *LAYER_PACKAGES,
        *("boto3", "botocore", "s3transfer", "urllib3", "dateutil", "six", "jmespath"),
        *("awslambdaric", "bootstrap", "snapshot_restore_py", "sitecustomize", "setuptools"),
        *("orjson", "pydantic", "yaml", "compression", "annotationlib", "trainguard_rules", "lambdas"),
    ],
)
def test_package_named_like_an_imported_module_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RulesPackageError, match=f"its name '{name}' is taken by a module"):
        read_rules_package(str(write(tmp_path / name, {"__init__.py": INIT.replace("ours", name)})))


def test_packages_may_import_what_the_bare_layer_holds() -> None:
    site = layer_folder(overlay.AWS) / "python"
    no_package = (".dist-info", ".libs", "__pycache__")
    held = {entry.name.partition(".")[0] for entry in site.iterdir() if not entry.name.endswith(no_package)}
    assert set(LAYER_PACKAGES) == held


def test_given_the_context_when_read_then_a_package_is_a_path() -> None:
    assert DeploymentConfig.from_context({}).rules_package is None
    assert DeploymentConfig.from_context({"rules_package": EXAMPLE}).rules_package == EXAMPLE
    with pytest.raises(DeploymentConfigError, match="rules_package is '  ', expected the folder of a Python package"):
        DeploymentConfig.from_context({"rules_package": "  "})


def test_missing_package_stops_synthesis_with_its_name() -> None:
    with pytest.raises(RulesPackageError, match="nowhere"):
        RulesLayer(Stack(App(), "Stack"), "Layer", overlay=overlay.AWS, rules_package="nowhere")
