"""Names that a package of rules may not have: in the functions it would stand before the module of that name."""

import re
import sys
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

# Distributions that the functions have with all that they require, by the layer and by Lambda's runtime.
_ROOTS = ("trainguard", "boto3")

# Also in Lambda's runtime, or imported by Python itself when it starts.
_OF_THE_RUNTIME = frozenset({
    "awslambdaric", "bootstrap", "lambda_function", "lambda_runtime_client", "lambda_runtime_exception",
    "lambda_runtime_marshaller", "pip", "runtime_client", "setuptools", "simplejson", "sitecustomize",
    "snapshot_restore_py", "usercustomize",
})  # fmt: skip

# Optional imports of the layer's and the runtime's libraries.
_LOOKED_FOR = frozenset({
    "attr", "attrs", "aws_encryption_sdk", "aws_xray_sdk", "awscrt", "backports", "brotli", "brotlicffi", "certifi",
    "cryptography", "datadog_lambda", "fastjsonschema", "google", "h2", "idna", "jwt", "orjson", "psutil",
    "pydantic", "pydantic_core", "redis", "socks", "threadpoolctl", "tomli", "tomli_w", "yaml", "zstandard",
})  # fmt: skip

# Of the standard library in later versions of Python than this process may run.
_NEWER_STANDARD = frozenset({"annotationlib", "compression"})

_OF_THE_PROJECT = frozenset({"handler", "infra", "lambdas", "trainguard_cdk"})

_REQUIREMENT = re.compile(r"[A-Za-z0-9._-]+")


@cache
def existing_resources() -> frozenset[str]:
    """Return the names of modules that are taken in the functions, beside those of the layer's own list."""
    required = _required(_ROOTS)
    libraries = {
        module for module, sources in packages_distributions().items() if required & {_normal(each) for each in sources}
    }
    others = (_OF_THE_RUNTIME, _LOOKED_FOR, _NEWER_STANDARD, _OF_THE_PROJECT)
    return frozenset({*libraries, *sys.stdlib_module_names}.union(*others))


def _required(roots: Iterable[str]) -> frozenset[str]:
    """Return the distributions with all that they require, without their extras."""
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = _normal(waiting.pop())
        if name in found:
            continue
        found.add(name)
        try:
            wanted = requires(name) or []
        except PackageNotFoundError:
            continue  # required for another platform
        names = (_REQUIREMENT.match(each) for each in wanted if "extra ==" not in each)
        waiting += [name[0] for name in names if name]
    return frozenset(found)


def _normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()
