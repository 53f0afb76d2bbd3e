"""What the page shows of a job's training: plots of the digest, and the report on an XGBoost model."""
