"""One stream in hand: its session, its rules, its stored item."""
