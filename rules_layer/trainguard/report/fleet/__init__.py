"""Many jobs on one page: what was lost, by rule, owner and job; the weekly digest."""
