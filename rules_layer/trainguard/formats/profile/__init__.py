"""Profile objects, read: key grammar, system metrics, framework events."""
