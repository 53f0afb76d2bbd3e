"""The page on deployment: its table is that of the readers, and what it promises of names and services is so."""

import dataclasses
import re
from pathlib import Path

from infra.config import DeploymentConfig
from infra.constructs.network import GATEWAY_SERVICES, INTERFACE_SERVICES

PAGE = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text(encoding="utf-8")


def shown(default: object) -> str:
    if default is None or default == ():
        return "none"
    return f"`{str(default).lower()}`" if isinstance(default, bool) else f"`{default}`"


def test_given_the_table_of_the_context_when_read_then_it_has_every_setting_with_its_default() -> None:
    table = PAGE.partition("## Context")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", table, re.MULTILINE))
    defaults = {field.name: shown(field.default) for field in dataclasses.fields(DeploymentConfig)}
    assert rows == defaults
    assert list(rows) == list(DeploymentConfig.names())


def test_given_the_endpoints_that_a_vpc_needs_when_listed_then_they_are_those_of_the_code() -> None:
    section = PAGE.partition("## In a VPC")[2].partition("\n## ")[0]
    gateway, interface = re.findall(r"^\| (?:gateway|interface), .+", section, re.MULTILINE)
    listed = re.findall(r"`([\w.]+)`", interface)
    assert tuple(listed) == INTERFACE_SERVICES
    assert tuple(re.findall(r"`([\w.]+)`", gateway))[:2] == GATEWAY_SERVICES
