"""Names of the tags that TrainGuard reads, beside those of settings."""

NAMESPACE = "trainguard:"
STOP_TAG = "trainguard:stop-on-fire"
STOP_ALLOWED = "allowed"
FRAMEWORK_TAG = "trainguard:framework-metrics"
FRAMEWORK_EXPECTED = "expected"
SETTINGS_TAG = "trainguard:settings"
