"""In-memory twins of the AWS adapters."""
