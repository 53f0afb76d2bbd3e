"""The deployment's documents of settings, SSM parameters."""

from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from trainguard.aws.aws_errors import error_code, translated

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_ssm import SSMClient


class SsmSettingDocuments:
    """Reads documents each time; ``client`` is called first then, ``path`` ends in a slash."""

    def __init__(self, *, client: "Callable[[], SSMClient]", default: str, path: str) -> None:
        self._client = client
        self._default = default
        self._path = path if path.endswith("/") else f"{path}/"

    @property
    def default(self) -> str:
        """Name of the document that holds for every job."""
        return self._default

    @property
    def path(self) -> str:
        """Beginning of the names of the documents that a job may name, slash included."""
        return self._path

    def read(self, name: str) -> str | None:
        """Return a document, or None when there is none; PortUnavailableError when it cannot be read now."""
        with translated("ssm", "GetParameter"):
            try:
                return self._client().get_parameter(Name=name)["Parameter"]["Value"]
            except ClientError as error:
                if error_code(error) == "ParameterNotFound":
                    return None
                raise
