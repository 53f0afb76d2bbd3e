"""What training computes, step by step: tensors and scalars as training jobs save them."""
