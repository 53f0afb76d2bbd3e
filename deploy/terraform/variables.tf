# One variable for each parameter of the release's template; null keeps the template's default.

variable "asset_bucket" {
  description = "Bucket, in the stack's Region, that holds the release's assets."
  type        = string
}

variable "asset_bucket_by_region" {
  description = "Whether the stack's Region is added to the bucket's name, as in our-assets-eu-west-1, for stack sets."
  type        = string
  default     = null
}

variable "asset_prefix" {
  description = "Prefix of the assets in that bucket. It ends with a slash, or is empty."
  type        = string
  default     = "trainguard/"
}

variable "profile_bucket" {
  description = "Existing bucket of profiles, with notifications on. Empty: the stack makes one."
  type        = string
  default     = null
}

variable "profile_key_arn" {
  description = "ARN of the KMS key that encrypts the existing bucket. Empty: S3 or AWS manages that key."
  type        = string
  default     = null
}

variable "profile_notifications" {
  description = "How the existing bucket announces objects: by events, or by S3 to the queue, for which S3 asks nothing."
  type        = string
  default     = null
}

variable "profile_retention_days" {
  description = "Age in days at which profiles and reports in the stack's own bucket expire."
  type        = number
  default     = null
}

variable "evaluate" {
  description = "Jobs that are evaluated. by-bucket: all with the stack's own bucket, tagged ones with an existing one."
  type        = string
  default     = null
}

variable "alert_email" {
  description = "Mail address that gets alerts about training jobs. Empty: none."
  type        = string
  default     = null
}

variable "operations_email" {
  description = "Mail address that gets alarms about TrainGuard itself. Empty: none."
  type        = string
  default     = null
}

variable "central_bus_arn" {
  description = "ARN of the EventBridge bus that findings and statements of jobs go to. Empty: none."
  type        = string
  default     = null
}

variable "stop_switch" {
  description = "Whether TrainGuard may stop training jobs that carry the tag trainguard:stop-on-fire."
  type        = string
  default     = null
}

variable "max_stops_per_hour" {
  description = "How many training jobs may be stopped within an hour. 0 stops none."
  type        = number
  default     = null
}

variable "stop_limit_function" {
  description = "ARN of the central stack's StopLimitFunction. Without its answer nothing is stopped. Empty: none."
  type        = string
  default     = null
}

variable "ops_items" {
  description = "Whether each broken GPU gets an OpsItem in OpsCenter."
  type        = bool
  default     = null
}

variable "weekly_digest" {
  description = "Whether both topics get the waste of the week."
  type        = bool
  default     = null
}

variable "event_schemas" {
  description = "Whether EventBridge has a registry with the events' schemas."
  type        = bool
  default     = null
}

variable "stop_batch_jobs" {
  description = "Whether fires may stop AWS Batch jobs, where their tags allow it."
  type        = bool
  default     = null
}

variable "stop_instances" {
  description = "Whether fires may stop EC2 instances, where their tags allow it."
  type        = bool
  default     = null
}

variable "stop_workloads" {
  description = "Whether fires may ask agents of clusters to stop workloads."
  type        = bool
  default     = null
}

variable "act_on_nodes" {
  description = "Whether broken GPUs may ask agents of clusters to act on nodes."
  type        = bool
  default     = null
}

variable "tracing" {
  description = "active sends a trace of each invocation and execution to X-Ray."
  type        = string
  default     = null
}

variable "rollout" {
  description = "How new versions of evaluating functions take over. In steps, their alarms bring the earlier ones back."
  type        = string
  default     = null
}

variable "canary" {
  description = "Whether a synthetic job a day proves that the deployment detects, alerts and reports."
  type        = bool
  default     = null
}

variable "canary_image" {
  description = "Image in ECR, with sleep, of a training job a day that the canary creates and ends. Empty: none."
  type        = string
  default     = null
}

variable "dashboard" {
  description = "Whether there is a CloudWatch dashboard. Beyond the free ones of an account it costs 3 USD a month."
  type        = bool
  default     = null
}

variable "log_retention_days" {
  description = "Age in days at which log events expire."
  type        = number
  default     = null
}

variable "evaluator_concurrency" {
  description = "Evaluators that the queue invokes at once. 5 in a new account, which may run ten functions at once."
  type        = number
  default     = null
}

variable "evaluator_memory_mb" {
  description = "Memory of evaluate_objects, in MiB. A new account allows 3,008."
  type        = number
  default     = null
}

variable "report_memory_mb" {
  description = "Memory of digest_profile and build_report, in MiB. A new account allows 3,008."
  type        = number
  default     = null
}

variable "scheduler_memory_mb" {
  description = "Memory of scheduler, in MiB. A new account allows 3,008."
  type        = string
  default     = null
}

variable "reconcile_memory_mb" {
  description = "Memory of reconcile_job, in MiB. A new account allows 3,008."
  type        = string
  default     = null
}

variable "lifecycle_memory_mb" {
  description = "Memory of job_lifecycle, in MiB. A new account allows 3,008."
  type        = string
  default     = null
}

variable "plan_report_memory_mb" {
  description = "Memory of plan_report, in MiB. A new account allows 3,008."
  type        = string
  default     = null
}

variable "kernel_digest_memory_mb" {
  description = "Memory of digest_trace, in MiB. A new account allows 3,008."
  type        = string
  default     = null
}

variable "kernel_join_memory_mb" {
  description = "Memory of join_capture, in MiB. A new account allows 3,008."
  type        = string
  default     = null
}

variable "kms_key_arn" {
  description = "ARN of the KMS key for the stack's bucket, tables, queues, topics and logs. Empty: keys of AWS."
  type        = string
  default     = null
}

variable "permissions_boundary" {
  description = "ARN of the policy that bounds every role. Empty: none."
  type        = string
  default     = null
}

variable "role_path" {
  description = "Path of every role, such as /trainguard/. Empty: none."
  type        = string
  default     = null
}

variable "code_signing_config_arn" {
  description = "ARN of the code signing configuration of every function; sign the assets before. Empty: none."
  type        = string
  default     = null
}

variable "organization_id" {
  description = "Id of the organisation whose accounts may write profiles below their id. Empty: none."
  type        = string
  default     = null
}

variable "subnet_ids" {
  description = "Ids of the functions' subnets, at most six, with commas. Empty: the functions run outside any VPC."
  type        = string
  default     = null
}

variable "security_group_ids" {
  description = "Ids of the functions' security groups, at most two, with commas. They are needed with subnets."
  type        = string
  default     = null
}
