"""Bounded, encodable state: window, histograms, codec."""
