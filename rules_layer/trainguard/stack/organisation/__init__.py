"""An organisation: what an account states of its jobs to the central one, and the ceiling of stops that it asks."""
