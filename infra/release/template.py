"""Synthesises the template of a release, and lists its files."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aws_cdk import Acknowledgment, CfnCondition, CfnParameter, CliCredentialsStackSynthesizer, Token, Validations
from constructs import Construct

from infra import app, overlay
from infra.config import DeploymentConfig
from infra.release.choices import conditions, rules, template_with_choices
from infra.release.merging import Template, listed, named
from infra.release.parameters import ASSET_BUCKET, ASSET_PREFIX, declarations, form
from infra.stack import TrainGuardStack

STACK = "TrainGuard"
LAYER = "layer"

MOST_BYTES = 1_000_000
"""Limit of a template that CloudFormation reads from S3."""

_SHOWN_OF_HASH = 16
_UNUSED_HERE = ("CloudFormation-Validate::W2001", "CloudFormation-Validate::W8001")
"""Findings about parameters and conditions to which nothing refers."""

_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Asset:
    """A folder that the template needs as an archive; the name ``file`` changes with the content."""

    name: str
    file: str
    folder: Path


@dataclass(frozen=True, slots=True)
class ReleaseTemplate:
    """The template as CloudFormation reads it, and its assets."""

    document: dict[str, Any]
    assets: tuple[Asset, ...]

    @property
    def text(self) -> str:
        """The template as JSON without white space, of which an indented one would have a third."""
        return json.dumps(self.document, separators=(",", ":")) + "\n"


def release_template(config: DeploymentConfig, staging: Path) -> ReleaseTemplate:
    """Synthesise the stack once for each choice, and return the templates merged into one.

    Raises DeploymentConfigError, UnacknowledgedFindingError, and MergeError when two choices change the same value.
    """
    declared = declarations(config)
    files: dict[str, Any] = {}

    def make(chosen: DeploymentConfig) -> Template:
        _synthesise(chosen, declared, staging)
        files.update(_read(staging / f"{STACK}.assets.json")["files"])
        template: Template = named(_read(staging / f"{STACK}.template.json"))
        return template

    merged: Template = listed(template_with_choices(config, make))
    assets = _assets(files, staging)
    sections = {**merged, "Metadata": form(), "Parameters": declared, "Rules": rules()}
    text = json.dumps({"AWSTemplateFormatVersion": "2010-09-09", **sections})
    for asset in assets:
        text = text.replace(f"{asset.folder.name.removeprefix('asset.')}.zip", asset.file)
    return ReleaseTemplate(json.loads(text), assets)


def _synthesise(config: DeploymentConfig, parameters: Mapping[str, Any], staging: Path) -> None:
    made = app.new_app(str(staging))
    synthesizer = CliCredentialsStackSynthesizer(
        file_assets_bucket_name=f"${{{ASSET_BUCKET}}}", bucket_prefix=f"${{{ASSET_PREFIX}}}"
    )
    stack = TrainGuardStack(made, STACK, config=config, overlay=overlay.chosen(config), synthesizer=synthesizer)
    _declare(stack, parameters)
    app.write(made, judged=not config.emulator)


def _declare(stack: TrainGuardStack, parameters: Mapping[str, Any]) -> None:
    """Declare what the stack refers to, without defaults: CDK would judge the stack with them."""
    scope = Construct(stack, "Declarations")
    for name, declared in parameters.items():
        CfnParameter(scope, name, type=declared["Type"]).override_logical_id(name)
    for name, expression in conditions().items():
        CfnCondition(scope, name, expression=Token.as_any(expression)).override_logical_id(name)
    for rule in _UNUSED_HERE:
        reason = "The templates of other choices, with which this one is merged, refer to it."
        Validations.of(stack).acknowledge(Acknowledgment(id=rule, reason=reason))


def _assets(files: Mapping[str, Any], staging: Path) -> tuple[Asset, ...]:
    found = []
    for digest, described in files.items():
        if described["source"]["packaging"] == "zip":
            name = _name(described["displayName"])
            found.append(Asset(name, f"{name}-{digest[:_SHOWN_OF_HASH]}.zip", staging / described["source"]["path"]))
    return tuple(sorted(found, key=lambda asset: asset.name))


def _read(file: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return document


def _name(shown: str) -> str:
    """Return an asset's name from the path of the construct that it is code of."""
    part = shown.split("/")[-3] if shown.endswith("/Function/Code") else LAYER
    return _HUMP.sub("_", part).lower()
