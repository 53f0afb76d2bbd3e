"""What each role may do, compared with a table of its own: a permission more, or less, fails here."""

from collections import defaultdict
from fnmatch import fnmatchcase

import pytest

from tests.infra.synthesis import ROOT
from tests.infra.template import Statement, Template

Grants = set[tuple[str, str]]

# The role by which SNS logs alerts that it could not deliver.
DELIVERY = "ActionsDeliveryRole"

MACHINES = ("ActionsFireRole", "ReportsReportRole", "CapturesKernelsRole")

JOBS = "{StorageJobs.Arn}"
NODE_STATE = "{StorageNodeState.Arn}"
RULE_STATE = "{StorageRuleState.Arn}"
BOOKKEEPING = "{StorageBookkeeping.Arn}"
EVALUATION_QUEUE = "{IngestDoorbells.Arn}"
EVENT_DEAD_LETTERS = "{IngestEventDeadLetters.Arn}"
FIRE = "{ActionsFire.Arn}"
REPORT = "{ReportsReport.Arn}"
KERNELS = "{CapturesKernels.Arn}"
OWN_KERNELS = "arn:{AWS::Partition}:states:{AWS::Region}:{AWS::AccountId}:{}:TrainGuard-Kernels"
OWN_REPORT = "arn:{AWS::Partition}:states:{AWS::Region}:{AWS::AccountId}:{}:TrainGuard-Report"
BUCKET = "arn:{AWS::Partition}:s3:::{StorageProfiles}"
TRAINING_JOBS = "arn:{AWS::Partition}:sagemaker:{AWS::Region}:{AWS::AccountId}:training-job/*"
PARAMETER = "arn:{AWS::Partition}:ssm:{AWS::Region}:{AWS::AccountId}:parameter"
DEFAULT_SETTINGS, NAMED_SETTINGS = f"{PARAMETER}{{SettingsStackDefault}}", f"{PARAMETER}/TrainGuard/settings/*"
STOP_SWITCH = "arn:{AWS::Partition}:ssm:{AWS::Region}:{AWS::AccountId}:parameter{ActionsStopSwitch}"


def grants(resource: str, *actions: str) -> Grants:
    return {(action, resource) for action in actions}


def logs(function: str) -> Grants:
    return grants(f"{{{function}Logs.Arn}}", "logs:CreateLogStream", "logs:PutLogEvents")


REPORTS = f"{BUCKET}/*/rule-output/TrainGuardReport/*"
PARTS = f"{BUCKET}/*/rule-output/TrainGuardReport/parts/*"
KEPT_HANG = f"{BUCKET}/*/rule-output/TrainGuardReport/hang.json"
DUMPS = (
    "*/hang-dumps/*",
    *(
        f"*/{folder}/nccl_trace_rank_*"
        for folder in ("checkpoints", "tensorboard-output", "trainer-output", "profiler-output")
    ),
)

RUNS = f"{BUCKET}/*/rule-output/TrainGuardReport/kernels/runs/*"
DIGESTS = f"{BUCKET}/*/rule-output/TrainGuardReport/kernels/digests/*"
# What is read of kernel profiles: traces by how their names end, and nothing else of any folder.
TRACES = (
    "*.pt.trace.json",
    "*.pt.trace.json.gz",
    "*.xplane.pb",
    "*.xplane.pb.gz",
    "kernel-traces/*.sqlite",
    "kernel-traces/*.sqlite.gz",
    *(f"{place}*{ending}*" for place in ("kernel-traces/", "*memory", "*snapshot") for ending in (".pickle", ".pkl")),
    *(f"*memory_{name}.json*" for name in ("snapshot", "timeline")),
    "*memory_timeline.raw.json*",
)

RUN_MACHINE = grants(
    "*",
    "logs:CreateLogDelivery",
    "logs:GetLogDelivery",
    "logs:UpdateLogDelivery",
    "logs:DeleteLogDelivery",
    "logs:ListLogDeliveries",
    "logs:PutResourcePolicy",
    "logs:DescribeResourcePolicies",
    "logs:DescribeLogGroups",
)
READ_JOB = grants(JOBS, "dynamodb:GetItem") | grants(NODE_STATE, "dynamodb:Query")
DESCRIBE_JOBS = grants(TRAINING_JOBS, "sagemaker:DescribeTrainingJob", "sagemaker:ListTags")
EVALUATE = (
    grants(NODE_STATE, "dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:Query")
    | grants(RULE_STATE, "dynamodb:UpdateItem")
    | grants(BOOKKEEPING, "dynamodb:UpdateItem")
    | grants(EVALUATION_QUEUE, "sqs:SendMessage")
    | grants(FIRE, "states:StartExecution")
    | grants(REPORT, "states:StartExecution")
    | grants(f"{BUCKET}/*/job.json", "s3:GetObject")
    | grants(KEPT_HANG, "s3:GetObject")
    | grants(BUCKET, "s3:ListBucket")
    | DESCRIBE_JOBS
    | grants(f"{PARAMETER}/TrainGuard/brakes", "ssm:GetParameter")
)

READ_BRAKES = grants(f"{PARAMETER}/TrainGuard/brakes", "ssm:GetParameter")
READ_SETTINGS = grants(DEFAULT_SETTINGS, "ssm:GetParameter") | grants(NAMED_SETTINGS, "ssm:GetParameter")

# What is read of training: of checkpoints the logs alone.
TRAINING = (
    "debug-output/*",
    "tensorboard-output/*",
    "trainer-output/*",
    "checkpoints/*tfevents*",
    "checkpoints/*trainer_state.json",
    "checkpoints/*.csv",
    "checkpoints/*training.log",
)

EXPECTED: dict[str, Grants] = {
    "EvaluationEvaluateObjectsRole": EVALUATE
    | grants(EVALUATION_QUEUE, "sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes")
    | grants(f"{BUCKET}/*/profiler-output/*", "s3:GetObject")
    | set().union(*(grants(f"{BUCKET}/*/{keys}", "s3:GetObject") for keys in TRAINING))
    | grants(JOBS, "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem")
    | grants(NODE_STATE, "dynamodb:GetItem")
    | grants(KERNELS, "states:StartExecution")
    | grants(f"{BUCKET}/*/rule-output/TrainGuardReport/kernels/*/verdict.json", "s3:GetObject")
    | READ_SETTINGS
    | logs("EvaluationEvaluateObjects"),
    "EvaluationSchedulerRole": grants(f"{JOBS}/index/ActiveJobs", "dynamodb:Query")
    | grants("{EvaluationReconcileJobLive}", "lambda:InvokeFunction")
    | grants(EVENT_DEAD_LETTERS, "sqs:SendMessage")
    | READ_BRAKES
    | grants(BUCKET, "s3:ListBucket")
    | grants(DEFAULT_SETTINGS, "ssm:GetParameter")
    | logs("EvaluationScheduler"),
    "EvaluationReconcileJobRole": EVALUATE
    | grants(JOBS, "dynamodb:GetItem", "dynamodb:UpdateItem")
    | READ_SETTINGS
    | grants(EVENT_DEAD_LETTERS, "sqs:SendMessage")
    | logs("EvaluationReconcileJob"),
    "LifecycleJobLifecycleRole": grants(JOBS, "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem")
    | grants(NODE_STATE, "dynamodb:Query")
    | grants(EVALUATION_QUEUE, "sqs:SendMessage")
    | grants(EVENT_DEAD_LETTERS, "sqs:SendMessage")
    | grants(FIRE, "states:StartExecution")
    | READ_SETTINGS
    | DESCRIBE_JOBS
    | logs("LifecycleJobLifecycle"),
    "ActionsDecideStopRole": grants(STOP_SWITCH, "ssm:GetParameter")
    | grants(f"{PARAMETER}/TrainGuard/stop-switch-override", "ssm:GetParameter")
    | READ_BRAKES
    | grants(JOBS, "dynamodb:GetItem")
    | grants(RULE_STATE, "dynamodb:GetItem")
    | grants(BOOKKEEPING, "dynamodb:GetItem", "dynamodb:PutItem")
    | DESCRIBE_JOBS
    | logs("ActionsDecideStop"),
    "CanaryRole": grants(f"{BUCKET}/trainguard-canary-*", "s3:PutObject", "s3:DeleteObject")
    | grants(BUCKET, "s3:ListBucket")
    | grants(RULE_STATE, "dynamodb:GetItem")
    | grants(JOBS, "dynamodb:GetItem")
    | grants(EVENT_DEAD_LETTERS, "sqs:SendMessage")
    | logs("Canary"),
    "ActionsRecordFireRole": grants(RULE_STATE, "dynamodb:UpdateItem") | logs("ActionsRecordFire"),
    "ActionsStopJobRole": grants(RULE_STATE, "dynamodb:GetItem", "dynamodb:UpdateItem")
    | grants(BOOKKEEPING, "dynamodb:GetItem", "dynamodb:UpdateItem")
    | grants(TRAINING_JOBS, "sagemaker:StopTrainingJob", "sagemaker:DescribeTrainingJob")
    | logs("ActionsStopJob"),
    "ActionsSendAlertRole": grants("{ActionsAlerts}", "sns:Publish")
    | grants("{ActionsChat}", "sns:Publish")
    | grants("arn:{AWS::Partition}:events:{AWS::Region}:{AWS::AccountId}:event-bus/default", "events:PutEvents")
    | grants(BOOKKEEPING, "dynamodb:GetItem", "dynamodb:UpdateItem")
    | READ_BRAKES
    | logs("ActionsSendAlert"),
    "ActionsFireRole": set().union(
        *(
            grants(f"{{{name}Function.Arn}}", "lambda:InvokeFunction")
            for name in (
                "ActionsRecordFire",
                "ActionsDecideStop",
                "ActionsStopJob",
                "ActionsSendAlert",
            )
        )
    )
    | grants("{ActionsAlerts}", "sns:Publish")
    | grants(OWN_REPORT.replace("{}", "stateMachine"), "states:StartExecution")
    | RUN_MACHINE,
    "ReportsPlanReportRole": READ_JOB
    | grants(BUCKET, "s3:ListBucket")
    | grants(PARTS, "s3:PutObject")
    | logs("ReportsPlanReport"),
    "ReportsDigestProfileRole": grants(f"{BUCKET}/*/profiler-output/*", "s3:GetObject")
    | set().union(*(grants(f"{BUCKET}/*/{keys}", "s3:GetObject") for keys in TRAINING))
    | grants(f"{PARTS}/keys/*", "s3:GetObject")
    | grants(f"{PARTS}/training.json", "s3:GetObject")
    | grants(BUCKET, "s3:ListBucket")
    | grants(PARTS, "s3:PutObject")
    | logs("ReportsDigestProfile"),
    "ReportsBuildReportRole": READ_JOB
    | grants(REPORTS, "s3:PutObject")
    | grants(PARTS, "s3:GetObject", "s3:DeleteObject")
    | grants(KEPT_HANG, "s3:GetObject")
    | set().union(*(grants(f"{BUCKET}/{keys}", "s3:GetObject") for keys in DUMPS))
    | grants(BUCKET, "s3:ListBucket")
    | logs("ReportsBuildReport"),
    "ReportsReportRole": grants("{ReportsPlanReportFunction.Arn}", "lambda:InvokeFunction")
    | grants("{ReportsDigestProfileFunction.Arn}", "lambda:InvokeFunction")
    | grants("{ReportsBuildReportFunction.Arn}", "lambda:InvokeFunction")
    | grants("{ActionsRecordFireFunction.Arn}", "lambda:InvokeFunction")
    | grants(PARTS, "s3:GetObject")
    | grants(OWN_REPORT.replace("{}", "stateMachine"), "states:StartExecution")
    | grants(f"{OWN_REPORT.replace('{}', 'execution')}:*", "states:DescribeExecution", "states:StopExecution")
    | grants(f"{OWN_REPORT.replace('{}', 'execution')}/Digests:*", "states:DescribeExecution", "states:StopExecution")
    | RUN_MACHINE,
    "CapturesPlanCaptureRole": grants(BUCKET, "s3:ListBucket")
    | grants(RUNS, "s3:PutObject")
    | logs("CapturesPlanCapture"),
    "CapturesDigestTraceRole": set().union(*(grants(f"{BUCKET}/*/{keys}", "s3:GetObject") for keys in TRACES))
    | grants(BUCKET, "s3:ListBucket")
    | grants(DIGESTS, "s3:PutObject")
    | logs("CapturesDigestTrace"),
    "CapturesJoinCaptureRole": grants(RUNS, "s3:GetObject", "s3:DeleteObject")
    | grants(DIGESTS, "s3:GetObject", "s3:DeleteObject")
    | grants(f"{BUCKET}/*/rule-output/TrainGuardReport/kernels/*", "s3:PutObject")
    | grants(f"{BUCKET}/*/rule-output/TrainGuardReport/kernels.*", "s3:PutObject")
    | grants(BUCKET, "s3:ListBucket")
    | grants(EVALUATION_QUEUE, "sqs:SendMessage")
    | grants(TRAINING_JOBS, "sagemaker:DescribeTrainingJob")
    | logs("CapturesJoinCapture"),
    "ActionsDeliveryRole": grants(
        "arn:{AWS::Partition}:logs:{AWS::Region}:{AWS::AccountId}:log-group:"
        "sns/{AWS::Region}/{AWS::AccountId}/TrainGuard-*",
        "logs:CreateLogGroup",
        "logs:CreateLogStream",
        "logs:PutLogEvents",
    ),
    "CapturesKernelsRole": grants("{CapturesPlanCaptureFunction.Arn}", "lambda:InvokeFunction")
    | grants("{CapturesDigestTraceFunction.Arn}", "lambda:InvokeFunction")
    | grants("{CapturesJoinCaptureFunction.Arn}", "lambda:InvokeFunction")
    | grants(RUNS, "s3:GetObject")
    | grants(OWN_KERNELS.replace("{}", "stateMachine"), "states:StartExecution")
    | grants(f"{OWN_KERNELS.replace('{}', 'execution')}:*", "states:DescribeExecution", "states:StopExecution")
    | grants(f"{OWN_KERNELS.replace('{}', 'execution')}/Traces:*", "states:DescribeExecution", "states:StopExecution")
    | RUN_MACHINE,
}


@pytest.fixture(scope="module")
def held(template: Template) -> dict[str, Grants]:
    """Return what each role of the template may do."""
    found: dict[str, Grants] = defaultdict(set)
    for role, statement in template.role_statements():
        assert statement.effect == "Allow"
        assert not statement.not_actions
        for resource in statement.resources:
            found[role] |= grants(resource, *statement.actions)
    return found


@pytest.mark.parametrize("role", EXPECTED)
def test_permissions_of_each_role_match_the_table(role: str, held: dict[str, Grants]) -> None:
    assert held[role] == EXPECTED[role]


CONDITIONS = {
    ("ReportsBuildReportRole", "s3:ListBucket"): {
        "StringLike": {"s3:prefix": ["*/rule-output/TrainGuardReport/parts/*", *DUMPS]}
    },
    ("ActionsDecideStopRole", "dynamodb:PutItem"): {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["stops"]}},
    ("ActionsSendAlertRole", "dynamodb:UpdateItem"): {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["alerts"]}},
    ("ActionsSendAlertRole", "events:PutEvents"): {"StringEquals": {"events:source": "trainguard"}},
}


@pytest.mark.parametrize(("role", "action"), CONDITIONS)
def test_wide_action_is_allowed_on_a_condition(template: Template, role: str, action: str) -> None:
    (statement,) = (each for name, each in template.role_statements() if name == role and action in each.actions)
    assert statement.condition == CONDITIONS[role, action]


def test_report_machine_name_is_the_one_its_role_may_start(template: Template) -> None:
    assert template.one("AWS::StepFunctions::StateMachine", "ReportsReport")["StateMachineName"] == "TrainGuard-Report"


def test_table_knows_every_role(template: Template) -> None:
    assert set(template.of_type("AWS::IAM::Role")) == set(EXPECTED)


def test_permissions_stand_only_in_the_roles(template: Template) -> None:
    kinds = {resource.type for resource in template.resources if resource.type.startswith("AWS::IAM::")}
    assert kinds == {"AWS::IAM::Role"}
    assert not [role for role in template.of_type("AWS::IAM::Role").values() if "ManagedPolicyArns" in role.properties]


def test_no_two_functions_share_a_role(template: Template) -> None:
    functions = template.of_type("AWS::Lambda::Function").values()
    assert len({function.properties["Role"] for function in functions}) == len(functions) == 15


def test_no_allowed_action_has_a_wildcard(template: Template) -> None:
    allowing = [statement for _, statement in template.role_statements()]
    allowing += [entry for _, entry, _ in template.resource_policy_statements() if entry.effect == "Allow"]
    assert not [action for statement in allowing for action in statement.actions if "*" in action or "?" in action]
    assert not [statement for statement in allowing if statement.not_actions]


def test_each_role_is_trusted_by_one_service(template: Template) -> None:
    trusted = {
        name: role.properties["AssumeRolePolicyDocument"]["Statement"]
        for name, role in template.of_type("AWS::IAM::Role").items()
    }
    for name, statements in trusted.items():
        (statement,) = statements
        services = {**dict.fromkeys(MACHINES, "states.amazonaws.com"), DELIVERY: "sns.amazonaws.com"}
        service = services.get(name, "lambda.amazonaws.com")
        assert statement["Principal"] == {"Service": service}
        assert statement["Action"] == "sts:AssumeRole"
    for name in (*MACHINES, DELIVERY):
        (machine,) = trusted[name]
        assert machine["Condition"] == {"StringEquals": {"aws:SourceAccount": "{AWS::AccountId}"}}


def test_resource_policies_admit_only_services_for_one_source(
    template: Template,
) -> None:
    let_in = [
        (name, principal, statement)
        for name, statement, principal in template.resource_policy_statements()
        if statement.effect == "Allow"
    ]
    assert {name for name, _, _ in let_in} == {
        "IngestDoorbellsPolicy",
        "IngestEventDeadLettersPolicy",
        "MonitoringOperationsPolicy",
    }
    for _, principal, statement in let_in:
        assert set(principal) == {"Service"}
        assert {key for test in statement.condition.values() for key in test} & {"aws:SourceArn", "aws:SourceAccount"}


def test_fire_machine_calls_functions_reports_and_publishes(template: Template) -> None:
    actions = {
        action for role, entry in template.role_statements() if role == "ActionsFireRole" for action in entry.actions
    }
    asked = {action for action in actions if not action.startswith("logs:")}
    assert asked == {"lambda:InvokeFunction", "sns:Publish", "states:StartExecution"}


def may(statement: Statement, action: str, tags: dict[str, str]) -> bool:
    """Say whether a statement lets its role do ``action`` to a training job with ``tags``; IAM ignores letter case."""
    named = any(fnmatchcase(action.lower(), pattern.lower()) for pattern in statement.actions)
    if statement.not_actions:
        named = not any(fnmatchcase(action.lower(), pattern.lower()) for pattern in statement.not_actions)
    job = "arn:{AWS::Partition}:sagemaker:{AWS::Region}:{AWS::AccountId}:training-job/some-job"
    covered = any(fnmatchcase(job, pattern) for pattern in statement.resources)
    context = {f"aws:ResourceTag/{name}": value for name, value in tags.items()}
    met = all(
        operator == "StringEquals" and context.get(key) == wanted
        for operator, tests in statement.condition.items()
        for key, wanted in tests.items()
    )
    return statement.effect == "Allow" and named and covered and met


@pytest.mark.parametrize(
    "tags",
    [
        {},
        {"trainguard:stop-on-fire": "Allowed"},
        {"trainguard:stop-on-fire": "true"},
        {"trainguard:stop-on-fire": ""},
        {"Trainguard:stop-on-fire": "allowed"},
        {"stop-on-fire": "allowed"},
    ],
)
def test_job_without_opt_in_can_be_stopped_by_no_role(template: Template, tags: dict[str, str]) -> None:
    assert [role for role, entry in template.role_statements() if may(entry, "sagemaker:StopTrainingJob", tags)] == []


def test_opted_in_job_may_be_stopped_by_one_role_alone(
    template: Template,
) -> None:
    tags = {"trainguard:stop-on-fire": "allowed"}
    able = [role for role, entry in template.role_statements() if may(entry, "sagemaker:StopTrainingJob", tags)]
    assert able == ["ActionsStopJobRole"]


@pytest.mark.parametrize(
    "action",
    [
        "sagemaker:AddTags",
        "sagemaker:CreateTrainingJob",
        "sagemaker:UpdateTrainingJob",
        "sagemaker:DeleteTags",
        "sagemaker:StopHyperParameterTuningJob",
    ],
)
def test_opted_in_job_can_be_changed_in_no_other_way(template: Template, action: str) -> None:
    tags = {"trainguard:stop-on-fire": "allowed"}
    assert not [role for role, statement in template.role_statements() if may(statement, action, tags)]


def test_no_role_reaches_identities_or_other_roles(template: Template) -> None:
    services = {action.split(":")[0] for _, entry in template.role_statements() for action in entry.actions}
    assert not services & {"iam", "sts", "cloudformation", "organizations"}


def test_stopping_is_granted_once_and_called_once(template: Template) -> None:
    assert template.text.count('"sagemaker:StopTrainingJob"') == 1
    product = (ROOT / "rules_layer" / "trainguard", ROOT / "lambdas")
    texts = [file.read_text("utf-8") for folder in product for file in folder.rglob("*.py")]
    assert sum(text.count(".stop_training_job(") for text in texts) == 1
