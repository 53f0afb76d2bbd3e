"""Two profiles beside each other: whether they can be compared, what changed beyond the noise, and why."""
