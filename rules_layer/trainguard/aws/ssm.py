"""SSM: the deployment's documents of settings, its stop switch with the operators' override, and OpsItems."""

import json
from typing import TYPE_CHECKING

from trainguard.aws.aws_errors import translated, unless
from trainguard.stack.actions.stop_switch import StopSwitches

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_ssm import SSMClient

    from trainguard.stack.actions.ops_items import OpsItem

_MISSING = frozenset({"ParameterNotFound"})
_OPEN = frozenset({"OpsItemAlreadyExistsException"})


class SsmSettingDocuments:
    """Reads documents each time; ``client`` is called first then, ``path`` ends in a slash."""

    def __init__(self, *, client: "Callable[[], SSMClient]", default: str, path: str) -> None:
        self._client = client
        self.default = default
        self.path = path if path.endswith("/") else f"{path}/"

    def read(self, name: str) -> str | None:
        with translated("ssm", "GetParameter"):
            answer = unless(_MISSING, lambda: self._client().get_parameter(Name=name))
        return None if answer is None else answer["Parameter"]["Value"]


def written_at(client: "SSMClient", parameter: str) -> float:
    """Return when a parameter was written last, epoch seconds; raises PortUnavailableError."""
    with translated("ssm", "GetParameter"):
        return client.get_parameter(Name=parameter)["Parameter"]["LastModifiedDate"].timestamp()


class SsmStopSwitch:
    """Reads both parameters each time: a change takes effect at the next decision. The override need not exist."""

    def __init__(self, *, client: "SSMClient", parameter: str, override: str) -> None:
        self._client = client
        self._parameter = parameter
        self._override = override

    def read(self) -> StopSwitches:
        """Return both; raises PortUnavailableError unless both are known: an unknown setting must not permit a stop."""
        with translated("ssm", "GetParameter"):
            return stored_switches(self._client, parameter=self._parameter, override=self._override)


def stored_switches(client: "SSMClient", *, parameter: str, override: str) -> StopSwitches:
    """Read both parameters; raises the client library's errors, but for an override that does not exist."""
    deployed = client.get_parameter(Name=parameter)["Parameter"]["Value"]
    answer = unless(_MISSING, lambda: client.get_parameter(Name=override))
    return StopSwitches(deployed, None if answer is None else answer["Parameter"]["Value"])


class SsmOpsItems:
    """Opens OpsItems: OpsCenter refuses one whose ``dedupString`` an open one has."""

    def __init__(self, *, client: "Callable[[], SSMClient]") -> None:
        self._client = client

    def open(self, item: "OpsItem") -> bool:
        """Return whether it was opened now; raises PortUnavailableError."""
        data = {name: {"Type": "SearchableString", "Value": value} for name, value in item.data.items()}
        data["/aws/dedup"] = {"Type": "SearchableString", "Value": json.dumps({"dedupString": item.identity})}
        with translated("ssm", "CreateOpsItem"):
            answer = unless(
                _OPEN,
                lambda: self._client().create_ops_item(
                    Title=item.title,
                    Description=item.description,
                    Source="TrainGuard",
                    Category="Availability",
                    Severity=item.severity,
                    OperationalData=data,  # type: ignore[arg-type]  # literals, which a comprehension widens
                ),
            )
        return answer is not None
