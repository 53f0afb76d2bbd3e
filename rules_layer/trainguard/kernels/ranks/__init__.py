"""Several ranks of one job, and two profiles beside each other: what the profile of one rank cannot say."""
