"""Releases: the stack as a template with parameters, which CloudFormation deploys without CDK, and its files."""
