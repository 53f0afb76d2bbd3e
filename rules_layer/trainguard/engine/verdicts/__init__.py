"""What rules' results come to: episodes, liveness, findings, the job's verdicts."""
