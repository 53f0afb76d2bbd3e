"""``trainguard open``."""
