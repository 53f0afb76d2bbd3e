"""The deployment's stop switch, an SSM parameter."""

from typing import TYPE_CHECKING

from trainguard.adapters.aws_errors import translated

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient


class SsmStopSwitch:
    """Reads the switch each time: a change takes effect at the next fire."""

    def __init__(self, *, client: "SSMClient", parameter: str) -> None:
        self._client = client
        self._parameter = parameter

    def value(self) -> str:
        """Return the switch as it is now; PortUnavailableError when it cannot be read."""
        with translated("ssm", "GetParameter"):
            return self._client.get_parameter(Name=self._parameter)["Parameter"]["Value"]
