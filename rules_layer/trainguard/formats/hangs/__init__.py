"""What processes that stand still leave behind: dumps of the flight recorder, and stacks."""
