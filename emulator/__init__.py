"""The embedded emulator: LocalStack in host mode, without Docker or a token, for tests and the demo."""
