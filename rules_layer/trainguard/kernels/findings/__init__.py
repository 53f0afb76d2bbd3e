"""What a kernel profile shows to be wrong: pure functions over metrics."""
