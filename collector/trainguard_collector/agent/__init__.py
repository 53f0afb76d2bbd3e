"""The agent of a cluster: it does what a TrainGuard stack asks, to resources whose owners opted in."""
