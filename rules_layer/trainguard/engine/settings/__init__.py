"""How a job is to be evaluated: sources of settings, which of them counts, where each came from, what is at fault."""
