"""What operators have to compute, and to move at least, by the shapes of their inputs."""
