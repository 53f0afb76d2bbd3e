"""Readers of everything that is read: profiles, tensors and scalars, and what other recorders write."""
