"""A job's life: registered, described, closed."""
