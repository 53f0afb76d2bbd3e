"""The command line ``trainguard``; no function of the deployed stack imports it.

A command is a package in ``commands``: ``command`` is what typer reads, and imports its work, ``run``, when it runs.
What that finds is printed by ``output``: tables on a terminal, tabs in a pipe, one JSON document with ``--json``. What
several commands share is in ``services``, their common options in ``options``. Imports lead down alone: commands,
services, output.
"""
