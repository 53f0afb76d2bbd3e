"""The full report in the stack: planned, digested a node and day at a time, and put together by other functions."""
