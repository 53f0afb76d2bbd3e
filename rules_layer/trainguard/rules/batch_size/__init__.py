"""BatchSize: more GPU than the batch needs."""
