"""A synthetic job that proves once a week that the deployment detects and alerts."""
