"""What narrows permissions beyond their resources, compared with a table of its own: a condition less fails here."""

from typing import Any

from tests.infra.template import Template

PARTS = "*/rule-output/TrainGuardReport/parts/*"
DUMPS = (
    "*/hang-dumps/*",
    *(
        f"*/{folder}/nccl_trace_rank_*"
        for folder in ("checkpoints", "tensorboard-output", "trainer-output", "profiler-output")
    ),
)

CONDITIONS: dict[tuple[str, str], dict[str, dict[str, Any]]] = {
    ("ActionsStopJobRole", "StopOptedInTrainingJobs"): {
        "StringEquals": {"aws:ResourceTag/trainguard:stop-on-fire": "allowed"}
    },
    ("ActionsSendAlertRole", "EmitFindings"): {"StringEquals": {"events:source": "trainguard"}},
    **{
        (role, sid): {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": purposes}}
        for role, sid, purposes in (
            ("EvaluationEvaluateObjectsRole", "CountJobs", ["met-jobs", "tuning-job/*"]),
            ("EvaluationReconcileJobRole", "SummariseTuningJobs", ["tuning-job/*"]),
            ("ActionsDecideStopRole", "CountStops", ["stops"]),
            ("ActionsDecideStopRole", "ReadAgents", ["agents/*"]),
            ("ActionsStopJobRole", "AskAgents", ["requests/*", "agents/*"]),
            ("ActionsStopJobRole", "ReadAnswers", ["agents/*"]),
            ("ActionsSendAlertRole", "ClaimAlerts", ["alerts"]),
        )
    },
    ("EvaluationSchedulerRole", "ListCanaries"): {"StringLike": {"s3:prefix": "trainguard-canary-*"}},
    ("CanaryRole", "ListCanaries"): {"StringLike": {"s3:prefix": "trainguard-canary-*"}},
    ("CanaryRole", "ReadRowsOfCanaries"): {
        "ForAllValues:StringLike": {"dynamodb:LeadingKeys": "trainguard-canary-*"},
    },
    ("ReportsBuildReportRole", "ListPartsAndDumps"): {"StringLike": {"s3:prefix": [PARTS, *DUMPS]}},
}


def test_conditions_of_each_role_match_the_table(template: Template) -> None:
    found = {
        (role, str(statement.sid)): dict(statement.condition)
        for role, statement in template.role_statements()
        if statement.condition
    }
    assert found == CONDITIONS


def test_each_statement_of_a_role_has_its_own_purpose(template: Template) -> None:
    named = [(role, statement.sid) for role, statement in template.role_statements()]
    assert all(sid for _, sid in named)
    assert len(named) == len(set(named))
