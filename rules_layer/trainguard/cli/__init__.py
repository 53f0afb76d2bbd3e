"""The command line ``trainguard``; no function of the deployed stack imports it.

A command is a package in ``commands``: ``command`` is what typer reads, and imports its work, ``run``, when it runs. That
makes an `Answer`, which ``output`` prints: tables on a terminal, tabs in a pipe, one JSON document with ``--json``. What
several commands share is in ``services``, and their common options in ``options``. Imports lead down alone: commands,
services, output.
"""
