"""``trainguard kernels``."""
