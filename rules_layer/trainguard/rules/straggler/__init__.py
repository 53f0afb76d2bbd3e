"""Straggler: a rank that the others wait for."""
