"""What TrainGuard itself costs: a model of its requests, and the prices of AWS services."""
