"""``trainguard stops``."""
