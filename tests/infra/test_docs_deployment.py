"""The page on deployment: its table is that of the readers, and what it promises of names and services is so."""

import dataclasses
import re
from pathlib import Path

from infra.config import DeploymentConfig
from infra.constructs.network import GATEWAY_SERVICES, INTERFACE_SERVICES
from tests.infra.test_permissions import EXPECTED

ROOMS = ("", "Evaluation", "Lifecycle", "Actions", "Reports", "Captures")
PAGE = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text(encoding="utf-8")


def shown(default: object) -> str:
    if default is None or default == ():
        return "none"
    return f"`{str(default).lower()}`" if isinstance(default, bool) else f"`{default}`"


def test_context_table_has_every_setting_with_its_default() -> None:
    table = PAGE.partition("## Context")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", table, re.MULTILINE))
    defaults = {field.name: shown(field.default) for field in dataclasses.fields(DeploymentConfig)}
    assert rows == defaults
    assert list(rows) == list(DeploymentConfig.names())


def test_roles_for_a_denying_bucket_policy_match_the_users() -> None:
    section = PAGE.partition("## An existing bucket")[2].partition("\n## ")[0]
    named = {"".join(map(str.capitalize, name.split("_"))) for name in re.findall(r"`([a-z]+(?:_[a-z]+)+)`", section)}
    named |= {"Report"} if "the report state machine" in " ".join(section.split()) else set()
    named |= {"Kernels"} if "the kernels state machine" in " ".join(section.split()) else set()
    named |= {"Canary"} if "the canary" in section else set()
    use = {role for role, held in EXPECTED.items() if any(action.startswith("s3:") for action, _ in held)}
    assert {role for role in EXPECTED for name in named if role in {f"{room}{name}Role" for room in ROOMS}} == use
    assert len(use) == len(named)


def test_vpc_endpoints_on_the_page_match_the_code() -> None:
    section = PAGE.partition("## In a VPC")[2].partition("\n## ")[0]
    gateway, interface = re.findall(r"^\| (?:gateway|interface), .+", section, re.MULTILINE)
    listed = re.findall(r"`([\w.]+)`", interface)
    assert tuple(listed) == INTERFACE_SERVICES
    assert tuple(re.findall(r"`([\w.]+)`", gateway))[:2] == GATEWAY_SERVICES
