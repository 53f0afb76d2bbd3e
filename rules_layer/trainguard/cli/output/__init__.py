"""Output of commands: blocks for a terminal, a pipe or as JSON; progress; files."""
