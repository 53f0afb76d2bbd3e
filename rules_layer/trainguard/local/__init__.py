"""The local engine: whole profiles from a folder or from S3, judged as the deployed stack judges them."""
