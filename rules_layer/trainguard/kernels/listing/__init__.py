"""Which kernel profiles a place holds: judged ones, and traces that nothing has judged."""
