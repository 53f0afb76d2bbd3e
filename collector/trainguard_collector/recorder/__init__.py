"""Records what a training script does: steps, phases, tensors and annotations of one training process.

Nothing here imports a framework: torch is used where the script has imported it. Nothing raises into the script.
"""
