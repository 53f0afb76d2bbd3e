"""Tables of samples: CSV by a mapping of its columns, and what ``nvidia-smi`` writes."""
