"""Dataloader: too few or too many loaders, and waits for them."""
