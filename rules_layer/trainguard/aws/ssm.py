"""SSM parameters: the deployment's documents of settings, and its stop switch with the operators' override."""

from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from trainguard.aws.aws_errors import error_code, translated
from trainguard.stack.actions.stop_switch import StopSwitches

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_ssm import SSMClient
if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient


class SsmSettingDocuments:
    """Reads documents each time; ``client`` is called first then, ``path`` ends in a slash."""

    def __init__(self, *, client: "Callable[[], SSMClient]", default: str, path: str) -> None:
        self._client = client
        self._default = default
        self._path = path if path.endswith("/") else f"{path}/"

    @property
    def default(self) -> str:
        return self._default

    @property
    def path(self) -> str:
        return self._path

    def read(self, name: str) -> str | None:
        with translated("ssm", "GetParameter"):
            try:
                return self._client().get_parameter(Name=name)["Parameter"]["Value"]
            except ClientError as error:
                if error_code(error) == "ParameterNotFound":
                    return None
                raise


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
    try:
        return StopSwitches(deployed, client.get_parameter(Name=override)["Parameter"]["Value"])
    except ClientError as error:
        if error_code(error) != "ParameterNotFound":
            raise
        return StopSwitches(deployed)
