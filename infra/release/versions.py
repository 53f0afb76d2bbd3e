"""Versions of a release's functions: a new one is published when code, layer, role or a parameter changes.

CDK names a version after a hash of its function, which knows no parameter. CloudFormation publishes again when a
version's description changes, and Lambda refuses a version of a function that did not change: so both have one
description.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

from infra.release.merging import Template
from infra.release.parameters import PARAMETERS

# A description has at most 256 characters.
_HASH_DIGITS = 8
_BEGINNINGS = {"SubnetIds": "subnet-", "SecurityGroupIds": "sg-"}
_HASH_OF_VERSION = re.compile(r"(CurrentVersion[0-9A-F]{8})[0-9a-f]{32}")
# Lambda checks a signature when code is uploaded: no version keeps it.
_NOT_OF_A_VERSION = frozenset({"Code", "CodeSigningConfigArn"})


def with_steady_names(template: Template) -> Template:
    """Return a template whose versions have the same names whatever is chosen."""
    steady: Template = json.loads(_HASH_OF_VERSION.sub(r"\1", json.dumps(template)))
    for resource in steady["Resources"].values():
        if resource["Type"] == "AWS::Lambda::Version":
            # CDK's metadata is for names that hold a hash.
            resource.pop("Metadata", None)
    return steady


def with_versions(template: Template) -> Template:
    """Return a template whose versions, and functions with one, say in their description what they are of."""
    resources = dict(template["Resources"])
    for name, version in template["Resources"].items():
        if version["Type"] == "AWS::Lambda::Version":
            function = version["Properties"]["FunctionName"]["Ref"]
            said = {"Description": _description(resources[function]["Properties"], resources)}
            for each in (function, name):
                resources[each] = {**resources[each], "Properties": {**resources[each]["Properties"], **said}}
    return {**template, "Resources": resources}


def _description(properties: Template, resources: Template) -> Template:
    layers = [resources[each["Ref"]]["Properties"]["Content"] for each in properties["Layers"]]
    digest = hashlib.sha256(json.dumps([properties, layers], sort_keys=True).encode()).hexdigest()
    role = {"Fn::GetAtt": [properties["Role"]["Fn::GetAtt"][0], "RoleId"]}
    kept = {name: value for name, value in properties.items() if name not in _NOT_OF_A_VERSION}
    values = {json.dumps(each): each for each in _values(kept)}
    return {"Fn::Join": [" ", [digest[:_HASH_DIGITS], role, *values.values()]]}


def _values(value: Any) -> Iterator[Template]:
    """Yield what a deployment decides of a value: conditions as a digit, parameters, ids without their beginnings."""
    if isinstance(value, list):
        for part in value:
            yield from _values(part)
    elif isinstance(value, dict):
        for name, part in value.items():
            if name == "Ref" and part in _BEGINNINGS:
                yield {"Fn::Join": ["", {"Fn::Split": [_BEGINNINGS[part], value]}]}
            elif name == "Ref" and part in {each.name for each in PARAMETERS if each.setting}:
                yield value
            elif name == "Fn::If":
                yield {"Fn::If": [part[0], "1", "0"]}
                yield from _values(part[1:])
            else:
                yield from _values(part)
