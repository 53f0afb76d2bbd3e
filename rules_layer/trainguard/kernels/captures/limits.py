"""How much of a job's captures is looked at."""

MOST_LISTED = 50_000
"""Objects of a folder that are listed; traces behind them are in no capture, which is counted."""
