"""A package a command: ``command`` has options and help, and imports nothing that takes time; ``run`` does the work."""
