"""``trainguard doctor``: whether a deployed stack works, check by check, and what to do where it does not."""
