"""Tensors of a training in torch: what the rules over training health read."""
