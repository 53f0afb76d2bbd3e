"""What training instances cost, from a data file, and what a finding has cost."""
