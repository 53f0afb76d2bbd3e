"""TrainGuard's infrastructure as code."""
