"""HungJob: a job that does nothing, and will not."""
