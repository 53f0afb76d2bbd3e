"""One sampler for all jobs of a Kubernetes node: it finds the node's pods, their jobs and their GPUs."""
