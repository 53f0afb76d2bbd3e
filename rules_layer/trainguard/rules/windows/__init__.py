"""What several rules share: windows, patience, quantiles, and what chance makes of them."""
