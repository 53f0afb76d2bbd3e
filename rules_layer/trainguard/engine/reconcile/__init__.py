"""What happens every minute although no object arrives."""
