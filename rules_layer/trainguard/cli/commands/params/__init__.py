"""``trainguard params``."""
