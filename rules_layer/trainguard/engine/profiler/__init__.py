"""The family of profiler rules: system metrics and framework events."""
