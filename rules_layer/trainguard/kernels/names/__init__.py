"""Names of kernels: which family, precision and tensor cores they say."""
