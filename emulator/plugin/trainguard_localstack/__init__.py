"""What LocalStack 4.9.2 lacks, or does otherwise than AWS, when it runs without Docker."""
