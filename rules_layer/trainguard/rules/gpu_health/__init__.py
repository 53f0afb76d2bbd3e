"""GPUHealth: broken and throttled GPUs."""
