"""The command line ``trainguard``, in ``main`` and ``commands``; no function of the deployed stack imports it.

A command is a typer function in ``commands/``, which imports its work when it runs, over a module of its own name
here. That makes an `Answer`; how it is shown is decided in ``answer``. What is deployed is found by ``deployment``.
"""
