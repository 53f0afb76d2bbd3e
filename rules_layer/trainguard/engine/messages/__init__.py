"""Queue messages: read, grouped by job and stream, processed as a batch."""
