"""EventBridge patterns as AWS treats them, where LocalStack 4.9.2 does otherwise.

LocalStack's ``*`` wants at least one character, and an invalid pattern, which AWS refuses, hides events from later
rules.
"""

from __future__ import annotations

import re

from localstack.services.events import event_rule_engine, provider


def matches_wildcard(pattern: str, value: object) -> bool:
    """Say whether `value` is a string of the form `pattern`, in which ``*`` stands for any characters or none."""
    expression = ".*".join(re.escape(part) for part in pattern.split("*"))
    return isinstance(value, str) and re.fullmatch(expression, value, re.DOTALL) is not None


def install() -> None:
    """Correct wildcards, and check patterns when a rule is made."""
    event_rule_engine.EventRuleEngine._evaluate_wildcard = staticmethod(matches_wildcard)
    compiler = event_rule_engine.EventPatternCompiler()
    create_rule_service = provider.EventsProvider.create_rule_service

    def create_checked(
        events: provider.EventsProvider,
        name: str,
        region: str,
        account_id: str,
        schedule_expression: str | None,
        event_pattern: str | None,
        *rest: object,
    ) -> object:
        if event_pattern:
            compiler.compile_event_pattern(event_pattern)
        return create_rule_service(events, name, region, account_id, schedule_expression, event_pattern, *rest)

    provider.EventsProvider.create_rule_service = create_checked
