"""The layer's bill of materials."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from infra import bundling, overlay
from infra.bundling import layer_folder
from infra.places import PROJECT_ROOT
from infra.rules_package import read_rules_package
from infra.sbom import SBOM_FILE, bill_of_materials

LOCK = tomllib.loads((PROJECT_ROOT / "uv.lock").read_text("utf-8"))
LOCK = tomllib.loads((PROJECT_ROOT / "uv.lock").read_text("utf-8"))
PROJECT = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.fixture(scope="module", params=["arm64", "x86_64"])
def layer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the layer's folder for AWS, of each architecture, without bytecode."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bundling, "compile_site", lambda *_: None)
        return layer_folder(overlay.on_aws(request.param), tmp_path_factory.mktemp("layers"))


def read(layer: Path) -> dict[str, Any]:
    """Return a layer's bill of materials."""
    document: dict[str, Any] = json.loads((layer / SBOM_FILE).read_text("utf-8"))
    return document


def test_sbom_of_the_layer_is_cyclonedx_1_6(layer: Path) -> None:
    text = (layer / SBOM_FILE).read_text("utf-8")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


def test_sbom_names_exactly_the_contents_of_the_layer(layer: Path) -> None:
    named = {(each["name"], each["version"]) for each in read(layer)["components"]}
    folders = (each.name.removesuffix(".dist-info") for each in (layer / "python").glob("*.dist-info"))
    held = {tuple(folder.replace("_", "-").rsplit("-", 1)) for folder in folders}
    assert named == held | {("trainguard", PROJECT["version"])}


def test_wheel_hash_is_of_the_locked_file_for_the_platform(layer: Path) -> None:
    locked = {wheel["url"]: wheel["hash"] for package in LOCK["package"] for wheel in package.get("wheels", ())}
    cpu = "aarch64" if read(layer)["metadata"]["component"]["properties"][0]["value"] == "arm64" else "x86_64"
    for each in read(layer)["components"]:
        if each["name"] == "trainguard":
            continue
        (reference,) = each["externalReferences"]
        (digest,) = each["hashes"]
        assert locked[reference["url"]] == f"sha256:{digest['content']}"
        assert re.search(rf"-(py2\.)?py3-none-any\.whl$|-cp(313-cp313|\d+-abi3)-.*_{cpu}\.whl$", reference["url"])
        assert each["licenses"]


def test_licences_are_spdx_where_the_wheel_says_so(layer: Path) -> None:
    found = {each["name"]: each.get("licenses") for each in read(layer)["components"]}
    assert found["msgspec"][0]["license"]["id"] == "BSD-3-Clause"
    assert found["numpy"][0]["expression"].startswith("BSD-3-Clause AND ")
    assert found["jinja2"][0]["license"]["name"] == "BSD License"


def test_native_libraries_of_a_wheel_are_named_with_hashes(layer: Path) -> None:
    (numpy,) = (each for each in read(layer)["components"] if each["name"] == "numpy")
    named = {each["name"] for each in numpy["components"] if each["hashes"]}
    assert named == {file.name for file in (layer / "python" / "numpy.libs").iterdir()}
    assert any("openblas" in name for name in named)


def test_dependencies_are_those_of_project_and_wheels(layer: Path) -> None:
    needs = {each["ref"]: set(each.get("dependsOn", ())) for each in read(layer)["dependencies"]}
    assert needs["trainguard-layer"] == {"trainguard"}
    named = ("aws-lambda-powertools", "google-crc32c", "jinja2", "msgspec", "numpy", "protobuf", "tzdata")
    assert needs["trainguard"] == {f"pkg:pypi/{pinned(each)}" for each in named}
    assert [ref.partition("@")[0] for ref in needs[f"pkg:pypi/{pinned('jinja2')}"]] == ["pkg:pypi/markupsafe"]


def pinned(name: str) -> str:
    """Return name and locked version of a package, as in a package URL."""
    (version,) = (each["version"] for each in LOCK["package"] if each["name"] == name)
    return f"{name}@{version}"


def test_sbom_names_the_package_of_custom_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundling, "_install", lambda *_: None)
    monkeypatch.setattr(bundling, "compile_site", lambda *_: None)
    package = read_rules_package("examples/example_rules")
    document = read(layer_folder(overlay.AWS, tmp_path, rules_package=package))
    assert "example_rules" in {each["name"] for each in document["components"]}
    needs = {each["ref"]: each.get("dependsOn") for each in document["dependencies"]}
    assert needs["rules:example_rules"] == ["trainguard"]


def test_wheel_missing_in_the_lock_has_no_hash(tmp_path: Path) -> None:
    info = tmp_path / "odd-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n", encoding="utf-8")
    (info / "WHEEL").write_text("Tag: py3-none-any\n", encoding="utf-8")
    document = json.loads(bill_of_materials(tmp_path, "", overlay.AWS))
    (odd,) = (each for each in document["components"] if each["name"] == "odd")
    assert odd["version"] == "1.0"
    assert not odd.keys() & {"hashes", "licenses", "externalReferences"}
