"""Run files of Weights & Biases, ``run-<id>.wandb``."""
