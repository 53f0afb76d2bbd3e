"""debug-output, the layout of the SageMaker hook: steps of a run, tensors of a step."""
