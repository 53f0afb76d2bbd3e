"""The command line: ``trainguard analyze``. No function of the deployed stack imports it."""
