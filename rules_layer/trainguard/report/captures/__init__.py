"""The steps of the stack from traces to a verdict and a page, and the kernel section of a job's report."""
