"""In-memory twins of the AWS adapters, with faults on demand."""
