"""The report that is built from state."""
