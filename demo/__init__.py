"""The demonstration: recorded training jobs, and the driver that plays them against the deployed stack."""
