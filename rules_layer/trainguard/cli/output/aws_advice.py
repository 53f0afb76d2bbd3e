"""Advice on faults that AWS's answer, or the client library, has caused."""

import re

import botocore.exceptions
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    EndpointConnectionError,
    InvalidRegionError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)

from trainguard.aws.aws_errors import error_code
from trainguard.core.errors import (
    AccessDeniedError,
    CredentialsError,
    DeploymentError,
    PortUnavailableError,
    RegionError,
    TrainGuardError,
)

_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"})
_REFUSED = frozenset(
    {"InvalidClientTokenId", "UnrecognizedClientException", "InvalidAccessKeyId", "SignatureDoesNotMatch"}
    | {"AuthFailure", "IncompleteSignature", "MissingAuthenticationToken", "InvalidToken"}
)
_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403"})
_ACTION = re.compile(r"perform:?\s+([a-z0-9-]+:[A-Za-z*]+)")
_LOG_IN = "Log in again, for example with `aws sso login`, or set new AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
_SET_UP = "Run `aws configure` or `aws sso login`, set AWS_PROFILE, or pass --profile."

# Versions of botocore before 1.41 have none: they cannot use what `aws login` leaves.
_LOGIN: type[BotoCoreError] = getattr(botocore.exceptions, "LoginError", SSOError)

_FAULTS: tuple[tuple[tuple[type[BotoCoreError], ...], type[DeploymentError], str, str], ...] = (
    ((ProfileNotFound,), CredentialsError, "{}", "Pass --profile with one of `aws configure list-profiles`."),
    ((NoCredentialsError, PartialCredentialsError), CredentialsError, "no AWS credentials were found ({})", _SET_UP),
    (
        (SSOError, TokenRetrievalError, CredentialRetrievalError, _LOGIN),
        CredentialsError,
        "AWS credentials are not available: {}",
        _LOG_IN,
    ),
    (
        (NoRegionError,),
        RegionError,
        "no Region is set",
        "Pass --region, or set AWS_REGION or the profile's region, for example to us-east-1.",
    ),
    (
        (InvalidRegionError, EndpointConnectionError),
        RegionError,
        "{}",
        "Is the Region's name right, is there a network, and is AWS_ENDPOINT_URL right if it is set?",
    ),
)


def advised(fault: TrainGuardError) -> TrainGuardError:
    error = fault.__cause__ if isinstance(fault, PortUnavailableError) else None
    if isinstance(error, ClientError):
        return _advice_on_answer(error) or fault
    for kinds, advice, what, remedy in _FAULTS:
        if isinstance(error, kinds):
            return advice(what.format(str(error).rstrip(".")), remedy)
    return fault


def _advice_on_answer(error: ClientError) -> TrainGuardError | None:
    code = error_code(error)
    message = error.response.get("Error", {}).get("Message", "no message").rstrip(".")
    if code in _EXPIRED:
        return CredentialsError(f"the AWS credentials have expired ({code}: {message})", _LOG_IN)
    if code in _REFUSED:
        return CredentialsError(f"AWS does not accept the credentials ({code}: {message})", _LOG_IN)
    if code in _DENIED:
        named = _ACTION.search(message)
        action = named[1] if named else error.operation_name
        return AccessDeniedError(
            f"access denied to {action} ({message})", f"Ask for a policy that allows {action}, or pass --profile."
        )
    return None
