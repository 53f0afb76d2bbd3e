"""Versions of a release's functions: a new one is published when the code, the layer or a parameter changes.

CDK names a version after a hash of its function, which knows no parameter. CloudFormation publishes a version again
when its description changes, and Lambda one of a function that changed: so both have a description of all that may.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

from infra.release.merging import Template
from infra.release.parameters import PARAMETERS
from trainguard import __version__

# Lambda takes descriptions of up to 256 characters: ids without what each begins with, and only the first of a list.
_HASH_DIGITS = 10
_LISTS = {"SubnetIds": ("subnet-", 3), "SecurityGroupIds": ("sg-", 2)}
_HASH_OF_VERSION = re.compile(r"(CurrentVersion[0-9A-F]{8})[0-9a-f]{32}")


def with_steady_names(template: Template) -> Template:
    """Return a template whose versions have the same names whatever is chosen."""
    steady: Template = json.loads(_HASH_OF_VERSION.sub(r"\1", json.dumps(template)))
    return steady


def with_versions(template: Template) -> Template:
    """Return a template whose functions and versions say in their descriptions what they are of."""
    resources = dict(template["Resources"])
    for name, version in template["Resources"].items():
        if version["Type"] == "AWS::Lambda::Version":
            described = version["Properties"]["FunctionName"]["Ref"]
            text = _description(resources[described]["Properties"], template["Conditions"])
            for each in (described, name):
                kept = {part: value for part, value in resources[each].items() if part != "Metadata"}
                resources[each] = {**kept, "Properties": {**kept["Properties"], "Description": text}}
    return {**template, "Resources": resources}


def _description(properties: Template, conditions: Template) -> Template:
    digest = hashlib.sha256(json.dumps(properties, sort_keys=True).encode()).hexdigest()
    layer_number = {"Fn::Select": [7, {"Fn::Split": [":", properties["Layers"][0]]}]}
    given = dict.fromkeys(_parameters(properties, conditions))
    values = [_value(each.name) for each in PARAMETERS if each.setting and each.name in given]
    return {"Fn::Join": [" ", [__version__, digest[:_HASH_DIGITS], layer_number, *values]]}


def _parameters(value: Any, conditions: Template) -> Iterator[str]:
    """Yield the names of all that a value refers to, itself or by a condition."""
    if isinstance(value, list):
        for part in value:
            yield from _parameters(part, conditions)
    elif isinstance(value, dict):
        for name, part in value.items():
            if name == "Ref":
                yield part
                continue
            if name == "Fn::If":
                yield from _parameters(conditions[part[0]], conditions)
            yield from _parameters(part, conditions)


def _value(parameter: str) -> Template:
    value = {"Ref": parameter}
    if parameter not in _LISTS:
        return value
    begins, most = _LISTS[parameter]
    # As many empty ids behind, since `Fn::Select` takes no place that a shorter list lacks.
    ids = {"Fn::Split": [",", {"Fn::Join": ["", {"Fn::Split": [begins, {"Fn::Join": ["", [value, "," * most]]}]}]}]}
    return {"Fn::Join": [",", [{"Fn::Select": [place, ids]} for place in range(most)]]}
