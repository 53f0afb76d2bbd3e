"""The GPU's time by family, phase and module, and how much of its arithmetic is used."""
