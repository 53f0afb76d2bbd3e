"""``trainguard report``."""
