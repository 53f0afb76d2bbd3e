"""Recorded jobs run through the deployed stack, watched and judged."""
