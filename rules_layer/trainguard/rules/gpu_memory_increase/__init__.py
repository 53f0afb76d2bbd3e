"""GPUMemoryIncrease: GPU memory that fills up."""
