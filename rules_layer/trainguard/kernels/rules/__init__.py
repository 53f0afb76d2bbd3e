"""The rules over kernel profiles, a module a rule: its thresholds, its judgement, its words, and what it claims."""
