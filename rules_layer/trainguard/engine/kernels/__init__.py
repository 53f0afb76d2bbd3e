"""The family of rules over kernel profiles."""
