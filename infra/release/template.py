"""Synthesises the template of a release, and lists its files."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aws_cdk import Acknowledgment, CfnCondition, CfnParameter, CliCredentialsStackSynthesizer, Token, Validations
from constructs import Construct

from infra import app, overlay
from infra.config import DeploymentConfig
from infra.release.choices import HAS_BUCKET_BY_REGION, conditions, rules, template_with_choices
from infra.release.merging import Template, listed, named
from infra.release.parameters import ASSET_BUCKET, ASSET_PREFIX, declarations, form
from infra.release.versions import with_steady_names, with_versions
from infra.stack import TrainGuardStack

STACK = "TrainGuard"
LAYER = "layer"

# Limit of a template that CloudFormation reads from S3.
MOST_BYTES = 1_000_000

_SHOWN_OF_HASH = 16
# Findings about parameters and conditions to which nothing refers.
_UNUSED_HERE = ("CloudFormation-Validate::W2001", "CloudFormation-Validate::W8001")

# CDK's reference to the bucket of assets, and what stands in its place.
_BUCKET = {"Fn::Sub": f"${{{ASSET_BUCKET}}}"}
_BUCKET_OF_REGION = {
    "Fn::If": [HAS_BUCKET_BY_REGION, {"Fn::Sub": f"${{{ASSET_BUCKET}}}-${{AWS::Region}}"}, {"Ref": ASSET_BUCKET}]
}

_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")


# Folders that the template needs as archives, by name; the archive's name changes with the content.
Assets = dict[str, tuple[str, Path]]


def release_template(config: DeploymentConfig, staging: Path) -> tuple[str, Assets]:
    """Synthesise the stack once for each choice; return the templates merged into one as text, and its assets.

    Raises DeploymentConfigError, UnacknowledgedFindingError, and MergeError when two choices change the same value.
    """
    declared = declarations(config)
    files: dict[str, Any] = {}

    def make(chosen: DeploymentConfig) -> Template:
        made = app.new_app(str(staging))
        synthesizer = CliCredentialsStackSynthesizer(
            file_assets_bucket_name=f"${{{ASSET_BUCKET}}}", bucket_prefix=f"${{{ASSET_PREFIX}}}"
        )
        platform = overlay.chosen(chosen)
        _declare(TrainGuardStack(made, STACK, config=chosen, overlay=platform, synthesizer=synthesizer), declared)
        app.write(made, judged=not chosen.emulator)
        files.update(_read(staging / f"{STACK}.assets.json")["files"])
        template: Template = named(with_steady_names(_read(staging / f"{STACK}.template.json")))
        return template

    merged: Template = with_versions(listed(template_with_choices(config, make)))
    assets: Assets = {}
    sections = {**merged, "Metadata": form(), "Parameters": declared, "Rules": rules()}
    # Without white space, of which an indented one would have a third.
    text = json.dumps({"AWSTemplateFormatVersion": "2010-09-09", **sections}, separators=(",", ":")) + "\n"
    cdks, ours = (json.dumps(each, separators=(",", ":")) for each in (_BUCKET, _BUCKET_OF_REGION))
    text = text.replace(cdks, ours)
    for digest, described in files.items():
        if described["source"]["packaging"] == "zip":
            name = _name(described["displayName"])
            archive, folder = f"{name}-{digest[:_SHOWN_OF_HASH]}.zip", staging / described["source"]["path"]
            assets[name] = archive, folder
            text = text.replace(f"{folder.name.removeprefix('asset.')}.zip", archive)
    return text, assets


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


def _read(file: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return document


def _name(shown: str) -> str:
    """Return an asset's name from the path of the construct that it is code of."""
    part = shown.split("/")[-3] if shown.endswith("/Function/Code") else LAYER
    return _HUMP.sub("_", part).lower()
