"""The page on deployment: what it promises of names and services is so; the reference has every setting."""

import re
from dataclasses import fields
from pathlib import Path

from docs.site.reference import settings
from infra.config import DeploymentConfig
from tests.infra.test_permissions import EXPECTED
from trainguard.aws.endpoints import GATEWAY_SERVICES, INTERFACE_SERVICES, interface_services

ROOMS = ("", "Evaluation", "Lifecycle", "Actions", "Reports", "Captures")
PAGE = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text(encoding="utf-8")


def test_reference_has_every_setting_with_its_default() -> None:
    rows = re.findall(r"^\| (`.+`) \| (.+) \| \S.+ \|$", settings(), re.MULTILINE)
    named = [name for names, _ in rows for name in re.findall(r"`(\w+)`", names)]
    assert named == list(DeploymentConfig.names())
    assert ("`retain_data`", "`true`") in rows
    assert ("`alert_emails`, `operations_emails`", "none, none") in rows
    assert ("`profile_retention_days`, `log_retention_days`", "`30`, `30`") in rows


def test_roles_for_a_denying_bucket_policy_match_the_users() -> None:
    section = PAGE.partition("## An existing bucket")[2].partition("\n## ")[0]
    named = {"".join(map(str.capitalize, name.split("_"))) for name in re.findall(r"`([a-z]+(?:_[a-z]+)+)`", section)}
    named |= {"Report"} if "the report state machine" in " ".join(section.split()) else set()
    named |= {"Kernels"} if "the kernels state machine" in " ".join(section.split()) else set()
    named |= {"Canary"} if "the canary" in section else set()
    named |= {"Scheduler"} if "`scheduler`" in section else set()
    use = {role for role, held in EXPECTED.items() if any(action.startswith("s3:") for action, _ in held)}
    assert {role for role in EXPECTED for name in named if role in {f"{room}{name}Role" for room in ROOMS}} == use
    assert len(use) == len(named)


def test_vpc_endpoints_on_the_page_match_the_code() -> None:
    section = PAGE.partition("## In a VPC")[2].partition("\n## ")[0]
    gateway, interface, by_setting = re.findall(r"^\| (?:gateway|interface), .+", section, re.MULTILINE)
    listed = re.findall(r"`([\w.]+)`", interface)
    assert tuple(listed) == INTERFACE_SERVICES
    everything = interface_services(
        stoppable=("batch-job", "instance"),
        live_sources=("logs", "prometheus+https://aps-workspaces.eu.x", "prometheus+https://monitoring.eu.x"),
        has_secret=True,
    )
    named = set(re.findall(r"`([\w-]+)`", by_setting)) - {field.name for field in fields(DeploymentConfig)}
    assert named == set(everything) - set(INTERFACE_SERVICES)
    assert tuple(re.findall(r"`([\w.]+)`", gateway))[:2] == GATEWAY_SERVICES
