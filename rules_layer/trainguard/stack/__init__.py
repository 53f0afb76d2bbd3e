"""What only the deployed functions run: stops and alerts, the report in parts, polling, the canary."""
