"""``trainguard notifications``."""
