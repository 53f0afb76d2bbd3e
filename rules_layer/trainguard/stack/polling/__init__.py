"""Data of running jobs that lie with other services, brought as objects of the managed layout beside the profile."""
