"""Where the paid time of a job went: every GPU-second in exactly one bucket."""
