"""Readers of traces: PyTorch's, Nsight Systems' and XLA's."""
