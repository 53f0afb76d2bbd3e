"""A package a command: its function, which imports nothing slow until it runs, and its helpers."""
