"""The command line ``trainguard``. Imports lead down alone: commands, services, output; no function imports it."""
