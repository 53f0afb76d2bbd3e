"""What leaves the engine: rows, fires and notifications."""
