"""Rules of SageMaker Debugger over saved tensors: activations, weights, gradients, inputs, classes and trees."""
