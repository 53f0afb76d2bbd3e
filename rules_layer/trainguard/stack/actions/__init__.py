"""What a fire leads to: the decision to stop a job, and the alert."""
