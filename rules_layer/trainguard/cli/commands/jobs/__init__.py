"""``trainguard jobs``."""
