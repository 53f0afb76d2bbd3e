"""Names of the tags that TrainGuard reads, beside those of settings."""

NAMESPACE = "trainguard:"
STOP_TAG = "trainguard:stop-on-fire"
STOP_ALLOWED = "allowed"
FRAMEWORK_TAG = "trainguard:framework-metrics"
FRAMEWORK_EXPECTED = "expected"
SETTINGS_TAG = "trainguard:settings"
PROFILE_TAG = "trainguard:profile-path"
"""Where the profile lies of a job whose ProfilerConfig does not say so."""

JOB_TAG = "trainguard:job"
"""On a resource of AWS Batch or EC2: the job whose fires may stop it."""

EXEMPT_TAG = "trainguard:stop-exempt"
"""On such a resource: it is never stopped, whatever the tag's value."""

OWNER_TAGS = {"user": "trainguard:user", "team": "trainguard:team", "project": "trainguard:project"}
"""Whose a job is, by the kind of owner."""
