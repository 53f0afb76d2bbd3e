"""``trainguard verdict``."""
