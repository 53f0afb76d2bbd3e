"""The commands as typer sees them: options and help, and nothing that takes time to import."""
