# Deploys a release of TrainGuard: its template is the one that `make release` makes, so nothing here can differ from it.
# In a release this folder lies below the template and the assets.

terraform {
  required_version = ">= 1.3"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
  }
}

variable "name" {
  description = "Name of the stack, at most 60 characters."
  type        = string
  default     = "TrainGuard"
}

variable "tags" {
  description = "Tags of the stack, which its resources get."
  type        = map(string)
  default     = {}
}

locals {
  release  = "${path.module}/../.."
  template = "${local.release}/trainguard.template.json"
  parameters = {
    AssetBucket          = var.asset_bucket
    AssetBucketByRegion  = var.asset_bucket_by_region
    AssetPrefix          = var.asset_prefix
    ProfileBucket        = var.profile_bucket
    ProfileKeyArn        = var.profile_key_arn
    ProfileNotifications = var.profile_notifications
    ProfileRetentionDays = var.profile_retention_days
    Evaluate             = var.evaluate
    AlertEmail           = var.alert_email
    OperationsEmail      = var.operations_email
    CentralBusArn        = var.central_bus_arn
    StopSwitch           = var.stop_switch
    MaxStopsPerHour      = var.max_stops_per_hour
    StopLimitFunction    = var.stop_limit_function
    OpsItems             = var.ops_items
    WeeklyDigest         = var.weekly_digest
    EventSchemas         = var.event_schemas
    StopBatchJobs        = var.stop_batch_jobs
    StopInstances        = var.stop_instances
    StopWorkloads        = var.stop_workloads
    ActOnNodes           = var.act_on_nodes
    Tracing              = var.tracing
    Rollout              = var.rollout
    Canary               = var.canary
    CanaryImage          = var.canary_image
    Dashboard            = var.dashboard
    LogRetentionDays     = var.log_retention_days
    EvaluatorConcurrency = var.evaluator_concurrency
    EvaluatorMemoryMb    = var.evaluator_memory_mb
    ReportMemoryMb       = var.report_memory_mb
    SchedulerMemoryMb    = var.scheduler_memory_mb
    ReconcileMemoryMb    = var.reconcile_memory_mb
    LifecycleMemoryMb    = var.lifecycle_memory_mb
    PlanReportMemoryMb   = var.plan_report_memory_mb
    KernelDigestMemoryMb = var.kernel_digest_memory_mb
    KernelJoinMemoryMb   = var.kernel_join_memory_mb
    KmsKeyArn            = var.kms_key_arn
    PermissionsBoundary  = var.permissions_boundary
    RolePath             = var.role_path
    CodeSigningConfigArn = var.code_signing_config_arn
    OrganizationId       = var.organization_id
    SubnetIds            = var.subnet_ids
    SecurityGroupIds     = var.security_group_ids
  }
}

data "aws_s3_bucket" "assets" {
  bucket = var.asset_bucket
}

resource "aws_s3_object" "asset" {
  for_each    = fileset("${local.release}/assets", "*.zip")
  bucket      = var.asset_bucket
  key         = "${var.asset_prefix}${each.value}"
  source      = "${local.release}/assets/${each.value}"
  source_hash = filemd5("${local.release}/assets/${each.value}")
}

resource "aws_s3_object" "template" {
  bucket = var.asset_bucket
  key    = "${var.asset_prefix}templates/${filesha256(local.template)}.json"
  source = local.template
}

resource "aws_cloudformation_stack" "this" {
  name         = var.name
  template_url = "https://${data.aws_s3_bucket.assets.bucket_regional_domain_name}/${aws_s3_object.template.key}"
  capabilities = ["CAPABILITY_IAM"]
  parameters   = { for name, value in local.parameters : name => tostring(value) if value != null }
  tags         = var.tags
  depends_on   = [aws_s3_object.asset]
}

output "outputs" {
  description = "All outputs of the stack."
  value       = aws_cloudformation_stack.this.outputs
}

output "profiler_output_uri" {
  description = "Where profiles are written: TRAINGUARD_OUTPUT of the collector."
  value       = aws_cloudformation_stack.this.outputs["ProfilerOutputUri"]
}
