"""Shared by commands: the deployed stack, input files, names, rows of jobs, evaluation of a profile."""
