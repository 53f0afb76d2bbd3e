"""``trainguard analyze``."""
