"""The webhook: not there unless asked for; the secret is named and never held, the rule sends this stack's alone."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.config import DeploymentConfig, DeploymentConfigError
from tests.infra.template import Template
from tests.infra.variants import WEBHOOK_SECRET

KEY, URL = (f"{{{{resolve:secretsmanager:{WEBHOOK_SECRET}:SecretString:{field}}}}}" for field in ("key", "url"))


def deployed(variants: Path, name: str) -> Template:
    return Template(variants / name / "TrainGuard.template.json")


def rules(template: Template) -> dict[str, Mapping[str, Any]]:
    every = template.of_type("AWS::Events::Rule")
    return {name: rule.properties for name, rule in every.items() if name.startswith("Webhook")}


def test_default_stack_has_no_webhook(template: Template) -> None:
    assert not template.of_type("AWS::Events::Connection")
    assert "WEBHOOK_SERVICE" not in json.dumps(template.document)


@pytest.mark.parametrize(("name", "in_body"), [("webhook", True), ("opsgenie", False)])
def test_connection_takes_the_key_from_the_secret(variants: Path, name: str, in_body: bool) -> None:
    parameters = deployed(variants, name).one("AWS::Events::Connection", "WebhookConnection")["AuthParameters"]
    parameters = dict(parameters)
    assert parameters.pop("ApiKeyAuthParameters") == {"ApiKeyName": "Authorization", "ApiKeyValue": KEY}
    added = {"BodyParameters": [{"Key": "routing_key", "Value": KEY, "IsValueSecret": True}]}
    assert parameters == ({"InvocationHttpParameters": added} if in_body else {})


def test_rules_post_this_stacks_bodies_and_keep_what_fails(variants: Path) -> None:
    found = rules(deployed(variants, "opsgenie"))
    for rule in found.values():
        (target,) = rule["Targets"]
        assert (rule["EventPattern"]["source"], rule["EventPattern"]["detail-type"]) == (
            ["trainguard"],
            ["TrainGuard Webhook"],
        )
        assert rule["EventPattern"]["detail"]["stack"] == ["TrainGuard"]
        assert target["InputPath"] == "$.detail.body"
        assert target["DeadLetterConfig"] == {"Arn": "{IngestEventDeadLetters.Arn}"}
    post, close = (found[name] for name in ("WebhookPostRule", "WebhookCloseRule"))
    assert post["EventPattern"]["detail"]["closes"] == [{"exists": False}]
    assert close["EventPattern"]["detail"]["closes"] == [{"exists": True}]
    assert close["Targets"][0]["HttpParameters"] == {
        "PathParameterValues": ["$.detail.closes"],
        "QueryStringParameters": {"identifierType": "alias"},
    }
    addresses = {
        name: each.properties["InvocationEndpoint"]
        for name, each in deployed(variants, "opsgenie").of_type("AWS::Events::ApiDestination").items()
    }
    assert addresses == {"WebhookPostDestination": URL, "WebhookCloseDestination": f"{URL}/*/close"}
    assert rules(deployed(variants, "webhook")).keys() == {"WebhookPostRule"}


def test_roles_of_the_webhook_only_post(variants: Path) -> None:
    template = deployed(variants, "opsgenie")
    held = [(role, each.actions, each.resources) for role, each in template.role_statements() if "Webhook" in role]
    assert held == [
        (f"Webhook{name}Role", ("events:InvokeApiDestination",), (f"{{Webhook{name}Destination.Arn}}",))
        for name in ("Post", "Close")
    ]
    readers = [each for _, each in template.role_statements() if any("secretsmanager" in one for one in each.actions)]
    assert not readers


def test_service_without_secret_is_a_fault() -> None:
    with pytest.raises(DeploymentConfigError, match="webhook_service needs webhook_secret"):
        DeploymentConfig.from_context({"webhook_service": "slack"})
