"""A job that stands still: which rank is the cause, where it is, and who waits for it."""
