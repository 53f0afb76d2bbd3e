"""What services of AWS do with the roles of the stack, of which no code of ours says anything."""

from collections.abc import Mapping

ROLES = {
    "EvaluationEvaluateObjectsRole": "evaluate_objects",
    "EvaluationSchedulerRole": "scheduler",
    "EvaluationReconcileJobRole": "reconcile_job",
    "LifecycleJobLifecycleRole": "job_lifecycle",
    "ActionsDecideStopRole": "decide_stop",
    "ActionsRecordFireRole": "record_fire",
    "ActionsStopJobRole": "stop_job",
    "ActionsSendAlertRole": "send_alert",
    "CanaryRole": "canary",
    "ReportsPlanReportRole": "plan_report",
    "ReportsDigestProfileRole": "digest_profile",
    "ReportsBuildReportRole": "build_report",
    "CapturesPlanCaptureRole": "plan_capture",
    "CapturesDigestTraceRole": "digest_trace",
    "CapturesJoinCaptureRole": "join_capture",
}

# Roles that services alone take on.
OF_SERVICES = ("ActionsDeliveryRole",)

BY_LAMBDA = {
    "logs:CreateLogStream": "Lambda writes the function's log with its role",
    "logs:PutLogEvents": "Lambda writes the function's log with its role",
}
BY_QUEUE = {
    "sqs:ReceiveMessage": "Lambda polls the evaluation queue with the function's role",
    "sqs:DeleteMessage": "Lambda deletes what was handled with the function's role",
    "sqs:GetQueueAttributes": "Lambda scales its polling with the function's role",
}
MISSING_OBJECTS = {"s3:ListBucket": "without it S3 answers that a missing object is forbidden"}
BY_STATES = {
    "logs:CreateLogDelivery": "Step Functions sets up the delivery of its execution log",
    "logs:GetLogDelivery": "Step Functions manages the delivery of its execution log",
    "logs:UpdateLogDelivery": "Step Functions manages the delivery of its execution log",
    "logs:DeleteLogDelivery": "Step Functions ends the delivery of its execution log",
    "logs:ListLogDeliveries": "Step Functions finds the delivery of its execution log",
    "logs:PutResourcePolicy": "Step Functions lets the delivery write the log group",
    "logs:DescribeResourcePolicies": "Step Functions finds the policy that lets the delivery write",
    "logs:DescribeLogGroups": "Step Functions finds its log group",
}
BY_SNS = {
    "logs:CreateLogGroup": "SNS makes the log of failed deliveries where it is missing",
    "logs:CreateLogStream": "SNS writes the log of failed deliveries",
    "logs:PutLogEvents": "SNS writes the log of failed deliveries",
}
BY_MAP = {
    "states:StartExecution": "a Distributed Map starts an execution for each item",
    "states:DescribeExecution": "a Distributed Map follows its executions",
    "states:StopExecution": "a Distributed Map stops its executions when it is stopped",
}

# Actions of a role that no code of ours asks for, each with who does it and why.
DONE_BY_SERVICES: Mapping[str, Mapping[str, str]] = {
    **dict.fromkeys(ROLES, BY_LAMBDA),
    "EvaluationEvaluateObjectsRole": BY_LAMBDA | BY_QUEUE,
    "EvaluationSchedulerRole": BY_LAMBDA
    | {"sqs:SendMessage": "Lambda keeps a failed run of the scheduler with the function's role"},
    "EvaluationReconcileJobRole": BY_LAMBDA | MISSING_OBJECTS,
    "CapturesDigestTraceRole": BY_LAMBDA | MISSING_OBJECTS,
    "CanaryRole": BY_LAMBDA | {"sqs:SendMessage": "Lambda keeps a failed step with the function's role"},
    "ActionsFireRole": BY_STATES,
    "ActionsDeliveryRole": BY_SNS,
    "ReportsReportRole": BY_STATES | BY_MAP,
    "CapturesKernelsRole": BY_STATES | BY_MAP,
}
