"""GPUs, or nodes, that do less than the others."""
