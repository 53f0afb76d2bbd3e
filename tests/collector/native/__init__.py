"""A node of 8 GPUs and 96 cores for programs that read NVML and ``/proc``, on a machine that has neither."""
