"""The report of one job: its document and its files."""
