"""What stragglers cost: a step's operations replayed from their dependencies, as recorded and at an even pace."""
