# The role of the collector on an EKS cluster, by EKS Pod Identity: it writes below one prefix, and nothing else.

terraform {
  required_version = ">= 1.3"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.33"
    }
  }
}

variable "cluster_name" {
  description = "Name of the EKS cluster."
  type        = string
}

variable "profiler_output_uri" {
  description = "Where profiles are written, s3://bucket/prefix: the output of the module above."
  type        = string
}

variable "namespace" {
  description = "Namespace of the chart's release."
  type        = string
  default     = "trainguard"
}

variable "service_account" {
  description = "Service account of the chart's release."
  type        = string
  default     = "trainguard-collector"
}

data "aws_caller_identity" "here" {}
data "aws_partition" "here" {}

locals {
  place  = trimsuffix(trimprefix(var.profiler_output_uri, "s3://"), "/")
  bucket = split("/", local.place)[0]
  prefix = trimprefix(trimprefix(local.place, local.bucket), "/")
  trust  = file("${path.module}/../../iam/trust-pod-identity.json")
  policy = file("${path.module}/../../iam/policy.json")
}

resource "aws_iam_role" "collector" {
  name_prefix = "trainguard-collector-"
  assume_role_policy = replace(replace(replace(local.trust,
    "ACCOUNT", data.aws_caller_identity.here.account_id),
    "NAMESPACE", var.namespace),
  "\"trainguard-collector\"", jsonencode(var.service_account))
}

resource "aws_iam_role_policy" "profiles" {
  name = "profiles"
  role = aws_iam_role.collector.id
  policy = replace(replace(replace(replace(local.policy,
    "arn:aws:", "arn:${data.aws_partition.here.partition}:"),
    "BUCKET/PREFIX", trimsuffix("${local.bucket}/${local.prefix}", "/")),
    "BUCKET", local.bucket),
  "PREFIX/", local.prefix == "" ? "" : "${local.prefix}/")
}

resource "aws_eks_pod_identity_association" "collector" {
  cluster_name    = var.cluster_name
  namespace       = var.namespace
  service_account = var.service_account
  role_arn        = aws_iam_role.collector.arn
}

output "role_arn" {
  value = aws_iam_role.collector.arn
}
