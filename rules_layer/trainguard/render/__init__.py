"""Parts of pages: blocks, numbers, plots, and what a section of a rule is made of."""
