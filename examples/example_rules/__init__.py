"""An example of a deployment's own rules: deployed with ``-c rules_package=examples/example_rules``."""

from example_rules.host_memory import HostMemory

RULES = (HostMemory(),)
