"""The deployment's stop switch, two SSM parameters: the stack's own, and the operators' override."""

from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from trainguard.actions.stop_switch import StopSwitches
from trainguard.adapters.aws_errors import error_code, translated

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient


class SsmStopSwitch:
    """Reads both parameters each time: a change takes effect at the next decision.

    Parameters
    ----------
    client : SSMClient
        Low-level client.
    parameter : str
        Name of the parameter that the stack owns.
    override : str
        Name of the parameter that operators own. It need not exist.
    """

    def __init__(self, *, client: "SSMClient", parameter: str, override: str) -> None:
        self._client = client
        self._parameter = parameter
        self._override = override

    def read(self) -> StopSwitches:
        """Return both as they are now.

        Raises PortUnavailableError when one of them cannot be read, or the stack's own does not exist: who does not
        know what operators have said must not stop anything.
        """
        with translated("ssm", "GetParameter"):
            return stored_switches(self._client, parameter=self._parameter, override=self._override)


def stored_switches(client: "SSMClient", *, parameter: str, override: str) -> StopSwitches:
    """Read both parameters; raises what the client library does, but for an override that does not exist."""
    deployed = client.get_parameter(Name=parameter)["Parameter"]["Value"]
    try:
        return StopSwitches(deployed, client.get_parameter(Name=override)["Parameter"]["Value"])
    except ClientError as error:
        if error_code(error) != "ParameterNotFound":
            raise
        return StopSwitches(deployed)
