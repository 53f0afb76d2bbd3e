"""Merges two templates of one stack into one with a condition: where they differ, the condition chooses."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Json: TypeAlias = Any
Template: TypeAlias = dict[str, Json]

_NO_VALUE = {"Ref": "AWS::NoValue"}


class MergeError(Exception):
    """Templates that cannot be merged; the message says where they differ in a way that no condition expresses."""


class _Statements(dict[str, Json]):
    """Statements of a policy by their names."""


def named(value: Json) -> Json:
    """Return a template with the statements of policies by Sid or content, so that each is compared."""
    if isinstance(value, dict):
        return {key: named(part) for key, part in value.items()}
    if not isinstance(value, list):
        return value
    if value and all(isinstance(part, dict) and "Effect" in part for part in value):
        return _Statements({part.get("Sid") or json.dumps(part, sort_keys=True): named(part) for part in value})
    return [named(part) for part in value]


def listed(value: Json) -> Json:
    """Return a template for `named` with the statements as a list again."""
    if isinstance(value, _Statements):
        return [listed(part) for part in value.values()]
    if isinstance(value, dict):
        return {key: listed(part) for key, part in value.items()}
    return [listed(part) for part in value] if isinstance(value, list) else value


def merge(condition: str, merged: Template, holds: Template, fails: Template) -> Template:
    """Return ``merged``, which is ``holds`` after earlier conditions, with one more condition.

    All are as `named` returns them. Raises MergeError for a difference that no condition expresses.
    """
    sections = {**merged}
    resources = dict(merged["Resources"])
    if added := fails["Resources"].keys() - holds["Resources"].keys():
        raise MergeError(f"{condition}: only without it there are the resources {', '.join(sorted(added))}")
    for name, resource in holds["Resources"].items():
        if name in fails["Resources"]:
            resources[name] = _resource(condition, resources[name], resource, fails["Resources"][name], name)
        else:
            resources[name] = _conditional(condition, resources[name])
    sections["Resources"] = resources
    for each in resources.values():
        if (earlier := each.get("Condition", "").removesuffix(_and(condition))) != each.get("Condition", ""):
            both = {"Fn::And": [{"Condition": earlier}, {"Condition": condition}]}
            sections["Conditions"] = {**sections.get("Conditions", {}), each["Condition"]: both}
    for section in holds.keys() | fails.keys():
        if section == "Outputs":
            sections[section] = _outputs(condition, merged[section], holds[section], fails[section])
        elif section not in ("Resources", "Conditions"):
            parts = (merged.get(section), holds.get(section), fails.get(section))
            sections[section] = _value(condition, *parts, place=section)
    return sections


def _outputs(condition: str, merged: Template, holds: Template, fails: Template) -> Template:
    result = {**merged}
    for name, output in holds.items():
        if name in fails:
            result[name] = _value(condition, merged[name], output, fails[name], place=f"Outputs.{name}")
        else:
            result[name] = {"Condition": condition, **merged[name]}
    return result


def _and(condition: str) -> str:
    return f"And{condition}"


def _conditional(condition: str, resource: Template) -> Template:
    own = f"{resource['Condition']}{_and(condition)}" if "Condition" in resource else condition
    return {"Type": resource["Type"], **resource, "Condition": own}


def _resource(condition: str, merged: Template, holds: Template, fails: Template, name: str) -> Template:
    """Merge a resource of both templates; CloudFormation takes conditions in its properties and update policy alone."""
    chosen = ("Properties", "UpdatePolicy")
    attributes = (holds.keys() | fails.keys()) - {*chosen}
    if other := [key for key in sorted(attributes) if holds.get(key) != fails.get(key)]:
        raise MergeError(f"{condition}: {name} differs in {', '.join(other)}")
    for part in chosen:
        values = (each.get(part, _NO_VALUE) for each in (merged, holds, fails))
        if (value := _value(condition, *values, place=name)) != _NO_VALUE:
            merged = {**merged, part: value}
    return merged


def _value(condition: str, merged: Json, holds: Json, fails: Json, *, place: str) -> Json:
    if holds == fails:
        return merged
    if all(_is_mapping(each) for each in (merged, holds, fails)):
        return _mapping(condition, merged, holds, fails, place=place)
    if all(isinstance(each, list) and len(each) == len(holds) for each in (merged, holds, fails)):
        triples = enumerate(zip(merged, holds, fails, strict=True))
        return [_value(condition, *each, place=f"{place}.{number}") for number, each in triples]
    if all(isinstance(each, list) for each in (merged, holds, fails)) and len(merged) == len(holds):
        rest = iter(fails)
        left = next(rest, None)
        kept = []
        for part, original in zip(merged, holds, strict=True):
            stays = original == left
            kept.append(part if stays else _if(condition, part, _NO_VALUE))
            left = next(rest, None) if stays else left
        if left is None:
            return kept
    if merged != holds:
        raise MergeError(f"{condition}: another condition chooses the value of {place} already")
    return _if(condition, holds, fails)


def _mapping(condition: str, merged: Template, holds: Template, fails: Template, *, place: str) -> Template:
    result = type(merged)(merged)
    for key in [*holds, *(each for each in fails if each not in holds)]:
        if key not in fails:
            result[key] = _if(condition, merged[key], _NO_VALUE)
        elif key in holds:
            result[key] = _value(condition, merged[key], holds[key], fails[key], place=f"{place}.{key}")
        elif key in merged:
            raise MergeError(f"{condition}: another condition chooses whether there is {place}.{key} already")
        else:
            result[key] = _if(condition, _NO_VALUE, fails[key])
    return result


def _if(condition: str, holds: Json, fails: Json) -> Template:
    return {"Fn::If": [condition, holds, fails]}


def _is_mapping(value: Json) -> bool:
    """Return whether a value is an object, and none of CloudFormation's functions, of which parts are not merged."""
    if not isinstance(value, Mapping):
        return False
    return isinstance(value, _Statements) or not _is_function(tuple(value))


def _is_function(keys: Sequence[str]) -> bool:
    return len(keys) == 1 and (keys[0] == "Ref" or keys[0].startswith("Fn::"))
