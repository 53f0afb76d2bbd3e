"""A synthetic job that proves once a day that the deployment detects and alerts."""
