"""Plots as inline SVG: pure functions of data, coloured by the classes of the page's style."""
