"""What commands print: blocks rendered for a terminal, a pipe or as JSON; progress; files that are written."""
