"""The layer's bill of materials as CycloneDX JSON, without date or author: one layer has one document."""

import hashlib
import json
import tomllib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import Distribution, distributions, requires
from pathlib import Path
from typing import TypeAlias

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License, LicenseAcknowledgement
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.tags import Tag, parse_tag
from packaging.utils import canonicalize_name, parse_wheel_filename

from infra.overlay import Overlay
from trainguard import __version__

SBOM_FILE = "sbom.cdx.json"

_Tags: TypeAlias = frozenset[Tag]
# URL and SHA-256 of each file of a package and version, by its tags.
_Wheels: TypeAlias = dict[tuple[str, str], dict[_Tags, tuple[str, str]]]


def requirements() -> list[str]:
    """Return what the product requires, with its extras."""
    return sorted(requires("trainguard") or ())


def bill_of_materials(site: Path, lock: str, overlay: Overlay, *, own_rules: str | None = None) -> str:
    """Return the bill of materials of a layer, as CycloneDX JSON.

    ``site`` has the installed wheels, with their ``.dist-info``; ``lock`` is the ``pylock.toml`` that they were
    installed by, with checked hashes. ``own_rules`` names the deployment's own rules package.
    """
    locked = _locked_wheels(lock)
    installed = {_name(each): each for each in distributions(path=[str(site)])}
    wheels = {name: _component(each, locked, site) for name, each in sorted(installed.items())}
    product = Component(name="trainguard", version=__version__, type=ComponentType.LIBRARY, bom_ref="trainguard")
    layer = Component(
        name="trainguard-layer",
        version=__version__,
        type=ComponentType.APPLICATION,
        bom_ref="trainguard-layer",
        properties=[
            Property(name="trainguard:python", value=overlay.python_version),
            Property(name="trainguard:architecture", value=overlay.architecture),
        ],
    )
    own = [Component(name=own_rules, type=ComponentType.LIBRARY, bom_ref=f"rules:{own_rules}")] if own_rules else []
    bom = Bom(components=[product, *own, *wheels.values()])
    bom.metadata.component = layer
    bom.register_dependency(layer, [product, *own])
    bom.register_dependency(product, _among(wheels, requirements(), overlay, extra="stack"))
    for each in own:
        bom.register_dependency(each, [product])
    for name, component in wheels.items():
        bom.register_dependency(component, _among(wheels, installed[name].requires or (), overlay))
    return _written(bom)


def _component(installed: Distribution, locked: _Wheels, site: Path) -> Component:
    """Return a wheel as a component; its hash is that of the one file of the lock with the tags that it carries."""
    name, version = _name(installed), installed.version
    purl = PackageURL("pypi", None, name, version)
    lines = (installed.read_text("WHEEL") or "").splitlines()
    tags = [parse_tag(line.removeprefix("Tag:").strip()) for line in lines if line.startswith("Tag:")]
    wheel = locked.get((name, version), {}).get(frozenset[Tag]().union(*tags))
    page = [ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=XsUri(wheel[0]))] if wheel else []
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=purl.to_string(),
        purl=purl,
        licenses=_licences(installed),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=wheel[1])] if wheel else [],
        external_references=page,
        components=[_library(file) for file in sorted((site / f"{installed.name}.libs").glob("*.so*"))],
    )


def _library(file: Path) -> Component:
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest)]
    return Component(name=file.name, type=ComponentType.FILE, bom_ref=f"file:{file.name}", hashes=hashes)


def _licences(installed: Distribution) -> Sequence[License]:
    """Return the licences that a wheel declares: the SPDX expression, else its free text, else its classifiers."""
    metadata = installed.metadata
    classifiers = metadata.get_all("Classifier") or ()
    named = [each.rpartition(" :: ")[2] for each in classifiers if each.startswith("License :: ")]
    declared = metadata.get_all("License-Expression") or metadata.get_all("License") or named
    make = LicenseFactory().make_from_string
    return [make(each, license_acknowledgement=LicenseAcknowledgement.DECLARED) for each in declared]


def _among(
    wheels: Mapping[str, Component], needed: Iterable[str], overlay: Overlay, extra: str = ""
) -> list[Component]:
    """Return which wheels some requirements name where the functions run."""
    environment = {"python_version": overlay.python_version, "extra": extra}
    read = map(Requirement, needed)
    named = {canonicalize_name(each.name) for each in read if not each.marker or each.marker.evaluate(environment)}
    return [wheels[name] for name in sorted(named & wheels.keys())]


def _name(installed: Distribution) -> str:
    return canonicalize_name(installed.name)


def _locked_wheels(lock: str) -> _Wheels:
    found: _Wheels = {}
    for package in tomllib.loads(lock).get("packages", ()):
        for wheel in package.get("wheels", ()):
            url = wheel["url"]
            name, _, _, tags = parse_wheel_filename(url.rpartition("/")[2])
            found.setdefault((name, package["version"]), {})[tags] = url, wheel["hashes"]["sha256"]
    return found


def _written(bom: Bom) -> str:
    """Return the document without the moment of its writing, numbered by its content."""
    text = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string()
    document = json.loads(text)
    del document["metadata"]["timestamp"], document["serialNumber"]
    content = json.dumps(document, sort_keys=True)
    document["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, content).urn
    return json.dumps(document, indent=2, sort_keys=True) + "\n"
