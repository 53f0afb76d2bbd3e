"""What a role may do, as IAM itself reckons it: the role's policies, its boundary and the organization's together.

Policies of buckets and keys are not in it: IAM simulates those for users alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainguard.cli.doctor.asking import UnansweredError, Why, asking
from trainguard.cli.doctor.site import Site

if TYPE_CHECKING:
    from mypy_boto3_iam.type_defs import ContextEntryTypeDef, EvaluationResultTypeDef

_SIMULATE = "iam:SimulatePrincipalPolicy"


@dataclass(frozen=True, slots=True)
class Denial:
    """An action that a role may not do, and what keeps it from it."""

    action: str
    why: str


def denials(
    site: Site, role_arn: str, actions: Sequence[str], resource: str, context: Mapping[str, str]
) -> list[Denial]:
    """Return which of some actions a role may not do.

    Parameters
    ----------
    site : Site
    role_arn : str
    actions : sequence of str
        As IAM names them, for example ``s3:GetObject``.
    resource : str
        ARN of what they are done to; it need not exist.
    context : mapping
        Values that conditions look at, for example ``{"s3:prefix": "jobs/"}``.

    Raises
    ------
    UnansweredError
        When IAM does not answer, or not for every action.
    """
    entries: list[ContextEntryTypeDef] = [
        {"ContextKeyName": name, "ContextKeyValues": [value], "ContextKeyType": "string"}
        for name, value in context.items()
    ]
    with asking(_SIMULATE):
        results = site.clients.iam.simulate_principal_policy(
            PolicySourceArn=role_arn, ActionNames=list(actions), ResourceArns=[resource], ContextEntries=entries
        )["EvaluationResults"]
    silent = sorted(set(actions) - {result["EvalActionName"] for result in results})
    if silent:
        raise UnansweredError(_SIMULATE, f"it decided nothing about {', '.join(silent)}", Why.OTHER)
    return [Denial(result["EvalActionName"], _why(result)) for result in results if result["EvalDecision"] != "allowed"]


def _why(result: "EvaluationResultTypeDef") -> str:
    if result.get("PermissionsBoundaryDecisionDetail", {}).get("AllowedByPermissionsBoundary") is False:
        return "its permissions boundary leaves it out"
    if result.get("OrganizationsDecisionDetail", {}).get("AllowedByOrganizations") is False:
        return "a policy of the organization keeps it from the account"
    if result["EvalDecision"] == "explicitDeny":
        return "a statement of its policies denies it"
    return "no statement of its policies allows it"
