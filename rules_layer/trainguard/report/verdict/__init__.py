"""The verdict on a job, in one document."""
