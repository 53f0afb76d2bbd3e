"""Whether a run is slower, larger or worse than repeats of a baseline: pass, regression, or not known yet."""
