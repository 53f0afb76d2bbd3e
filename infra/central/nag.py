"""Findings of cdk-nag that stand in the central stack, each with its reason."""

from collections.abc import Sequence

from infra.config import DeploymentConfig
from infra.constructs.function import TrainGuardFunction
from infra.constructs.nag import NO_ASYNC_DESTINATION, NO_DLQ, Accepted, findings_of_functions

_KEPT = "The function's dead-letter queue keeps a failed event as it came, ready to be sent again."


def findings_that_stand(config: DeploymentConfig, functions: Sequence[TrainGuardFunction]) -> tuple[Accepted, ...]:
    return (
        ("Storage/Profiles/Resource", "AwsSolutions::AwsSolutions-S1", "It holds one page and its document."),
        (
            "Undelivered/Resource",
            "Serverless::Serverless-SQSRedrivePolicy",
            "It is a dead-letter queue: what it holds waits for a person, for whom an alarm fires.",
        ),
        (
            "StopLimit/AdmitStop/Function/Resource",
            NO_DLQ,
            "Accounts ask it synchronously: without an answer they stop nothing.",
        ),
        *(
            (f"{function}/Function/EventInvokeConfig/Resource", NO_ASYNC_DESTINATION, _KEPT)
            for function in ("Keeper/KeepStatement", "Page/DrawFleet", "WeeklyDigest/WeeklyDigest")
        ),
        *findings_of_functions(config, functions),
    )
