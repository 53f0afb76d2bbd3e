"""What a job takes and costs at another size, instance or batch, and when it ends."""
