"""What the page shows of each rule beside its sentence: plots and tables of the rule's details."""
