"""The clients that only the doctor needs, beside those of the stack's functions."""

from functools import cached_property
from typing import TYPE_CHECKING, Protocol, cast

from trainguard.adapters.clients import Clients

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mypy_boto3_cloudwatch import CloudWatchClient
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_iam import IAMClient
    from mypy_boto3_kms import KMSClient
    from mypy_boto3_lambda import LambdaClient


class CallerIdentity(Protocol):
    """The one question to STS; everybody may ask it."""

    def get_caller_identity(self) -> "Mapping[str, str]":
        """Return Account, Arn and UserId of the caller."""
        ...


class DoctorClients(Clients):
    """The clients of one diagnosis."""

    @cached_property
    def functions(self) -> "LambdaClient":
        """Client of the functions and of the queue's mapping to them."""
        return cast("LambdaClient", self._create("lambda"))

    @cached_property
    def events(self) -> "EventBridgeClient":
        """Client of the rules on objects and of the tick's."""
        return cast("EventBridgeClient", self._create("events"))

    @cached_property
    def cloudwatch(self) -> "CloudWatchClient":
        """Client of alarms and metrics."""
        return cast("CloudWatchClient", self._create("cloudwatch"))

    @cached_property
    def iam(self) -> "IAMClient":
        """Client that reckons what a role may do."""
        return cast("IAMClient", self._create("iam"))

    @cached_property
    def kms(self) -> "KMSClient":
        """Client of the key that encrypts the bucket."""
        return cast("KMSClient", self._create("kms"))

    @cached_property
    def sts(self) -> CallerIdentity:
        """Client that says who is calling."""
        return cast("CallerIdentity", self._create("sts"))
