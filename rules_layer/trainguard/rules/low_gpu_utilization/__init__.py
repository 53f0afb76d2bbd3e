"""LowGPUUtilization: GPUs that are not busy, or not steadily so."""
