"""A real training loop on this machine, sampled by the collector and judged by the deployed stack."""
