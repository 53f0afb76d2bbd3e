"""The central stack of an organisation: what all accounts state of their jobs, and the stop rate limit of all."""
