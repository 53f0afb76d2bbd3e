"""Rules over what training computes: losses, gradients, weights, activations."""
