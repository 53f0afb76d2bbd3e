"""What the managed service does when a tensor rule fires, as the SageMaker Python SDK configures it."""

import json
import re
from collections.abc import Iterator, Mapping

from trainguard.core.errors import LaunchConfigError

_PREFIX = re.compile(r"[A-Za-z0-9-]+", re.ASCII)
_ADDRESS = re.compile(r"[^@\s]+@[^@\s]+\.[A-Za-z]{2,}")
_PHONE = re.compile(r"\+\d{1,15}", re.ASCII)


class Action:
    """One action: its ``name`` and its ``parameters`` in the managed service's words."""

    def __init__(self, name: str, parameters: Mapping[str, str]) -> None:
        self.name = name
        self.parameters = dict(parameters)

    def to_json(self) -> dict[str, object]:
        return {"name": self.name, "parameters": self.parameters}

    def __iter__(self) -> Iterator["Action"]:
        """Iterate over the action itself, as over a list of one."""
        yield self


class StopTraining(Action):
    """Stop the job that the rule fired on, where its owner has allowed that."""

    def __init__(self, training_job_prefix: str | None = None) -> None:
        if training_job_prefix is not None and not _PREFIX.fullmatch(str(training_job_prefix)):
            raise LaunchConfigError("StopTraining", "training_job_prefix", training_job_prefix, "letters, digits and -")
        named = {} if training_job_prefix is None else {"training_job_prefix": training_job_prefix}
        super().__init__("stoptraining", named)


class Email(Action):
    """Send an e-mail; with TrainGuard people subscribe to the alert topic."""

    def __init__(self, email_address: str) -> None:
        if not isinstance(email_address, str) or not _ADDRESS.fullmatch(email_address):
            raise LaunchConfigError("Email", "email_address", email_address, "an e-mail address")
        super().__init__("email", {"endpoint": email_address})


class SMS(Action):
    """Send a text message; with TrainGuard people subscribe to the alert topic."""

    def __init__(self, phone_number: str) -> None:
        if not isinstance(phone_number, str) or not _PHONE.fullmatch(phone_number):
            raise LaunchConfigError("SMS", "phone_number", phone_number, "+ and 1 to 15 digits")
        super().__init__("sms", {"endpoint": phone_number})


class ActionList:
    """Several actions, in order."""

    def __init__(self, *actions: Action) -> None:
        for action in actions:
            if not isinstance(action, Action):
                raise LaunchConfigError("ActionList", "actions", action, "StopTraining, Email or SMS")
        self.actions = actions

    def __iter__(self) -> Iterator[Action]:
        return iter(self.actions)


Actions = Action | ActionList


def action_json(actions: Actions) -> str:
    named = [action.to_json() for action in actions]
    return json.dumps(named[0] if isinstance(actions, Action) else named)


def stops(actions: Actions | None) -> bool:
    return actions is not None and any(isinstance(action, StopTraining) for action in actions)
