"""A folder for the path of the sampler, where it finds a stand-in for NVML's bindings."""
