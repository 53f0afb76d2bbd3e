"""Answers for agents: facts, codes and our own words, with every foreign text in a field of its own."""
