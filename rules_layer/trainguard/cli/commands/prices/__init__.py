"""``trainguard prices``."""
