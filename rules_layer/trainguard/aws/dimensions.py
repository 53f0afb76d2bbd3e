"""The dimensions of the product's metrics, which the dashboard names without what writes them."""

RULE_DIMENSION, SEVERITY_DIMENSION = "RuleName", "Severity"
