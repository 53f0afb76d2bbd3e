"""TrainGuard: rules, reports and safe stops for training jobs, from profiles in S3."""
