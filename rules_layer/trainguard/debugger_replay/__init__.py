"""The ``compatible`` reading: a replay of what the managed report computes, defects included.

It is there for moving thresholds over and for comparing old reports. The deployed stack judges by ``documented`` alone:
closed windows, a lost last minute and state pooled over nodes make no sense in a live stream.

Each module names the defects that it keeps; ``docs/differences.md`` has them all, with the tests that show them.
"""
