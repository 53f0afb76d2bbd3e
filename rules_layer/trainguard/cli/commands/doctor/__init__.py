"""``trainguard doctor``."""
