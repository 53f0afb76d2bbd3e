"""Training health in reports."""
