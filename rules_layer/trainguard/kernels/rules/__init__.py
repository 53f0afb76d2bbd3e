"""The rules over kernel profiles, a class a rule: its thresholds, its judgement, its words, and what it claims."""
