"""The steps of the stack from the traces of a capture to its verdict and its page."""
