"""What other tools recorded of a training run: files of Weights & Biases, and what comes after them."""
