"""The thin edge: for each port an AWS adapter here and an in-memory twin in ``memory``."""
