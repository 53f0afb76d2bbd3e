"""CPUBottleneck and IOBottleneck: GPUs that wait for cores, or for a disk."""
