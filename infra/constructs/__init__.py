"""The parts of the stack, one construct a module."""
