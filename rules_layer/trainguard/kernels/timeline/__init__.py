"""The timeline of a trace: its rows by stream and thread, bounded so that a page can hold them."""
