"""Time on a GPU: intervals, the window that is judged, work that is lost, and what the rest is idle for."""
