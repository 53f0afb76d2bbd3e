"""StepOutlier: steps that take longer than the others."""
