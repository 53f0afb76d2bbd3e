"""The ``compatible`` reading: a replay of what the managed report computes, defects included.

It serves moving thresholds over and comparing old reports; the deployed stack judges by ``documented`` alone.
``docs/differences.md`` has the defects that are kept, with the tests that show them.
"""
