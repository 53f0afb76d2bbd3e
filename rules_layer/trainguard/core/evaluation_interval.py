"""How often a node's system metrics are evaluated, seconds: by default, at the least and at the most.

The command line reads them before it reads anything else.
"""

EVALUATION_EVERY_S = 180.0
SHORTEST_EVALUATION_S, LONGEST_EVALUATION_S = 60.0, 300.0
