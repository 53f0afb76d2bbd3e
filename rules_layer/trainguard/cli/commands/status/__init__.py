"""``trainguard status``."""
