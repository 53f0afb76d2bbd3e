"""An organisation: what an account states of its jobs to the central one, and the stop rate limit that it asks."""
