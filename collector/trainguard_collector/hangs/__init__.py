"""What a training leaves when it stands still: dumps of PyTorch's flight recorder, and Python stacks."""
