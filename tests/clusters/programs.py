"""What the tests ask of packages that lie in an environment of their own: a line of JSON in, one out."""

import json
import sys
import threading
from concurrent import futures
from pathlib import Path
from typing import Any


def render(chart: str, values: Any) -> Any:
    """Return the manifests of a chart, or the error that Helm gives."""
    import helm_python
    import yaml

    try:
        loaded = helm_python.Chart.load(chart)
        loaded.validate_schema(values)
        files = loaded.render(values, name="tg", namespace="monitoring")
    except helm_python.HelmError as fault:
        return {"error": str(fault)}
    texts = [text for name, text in sorted(files.items()) if name.endswith(".yaml")]
    return {"manifests": [each for text in texts for each in yaml.safe_load_all(text) if each]}


def lint(chart: str, values: Any) -> Any:
    import helm_python

    return helm_python.lint(chart, values, strict=True)


def validate(manifests: Any, version: str) -> Any:
    """Return what Kubernetes' schema of a version refuses, manifest by manifest."""
    import kubernetes_validate

    found = []
    for each in manifests:
        try:
            kubernetes_validate.validate(each, version, strict=True)
        except kubernetes_validate.ValidationError as fault:
            found.append(f"{each['kind']}: {fault}")
    return found


def parse(path: str) -> Any:
    """Return a file of Terraform as JSON."""
    import hcl2

    with Path(path).open() as file:
        return hcl2.load(file)


def kubelet(socket: str, packages: str, answer: str) -> Any:
    """Return the GPUs that the collector reads from a kubelet which answers so."""
    import grpc

    sys.path.append(packages)
    from trainguard_collector.kubernetes.devices import allocated_gpus

    class Handler(grpc.GenericRpcHandler):
        def service(self, details: Any) -> Any:
            if details.method != "/v1.PodResourcesLister/List":
                return None
            return grpc.unary_unary_rpc_method_handler(lambda *_: bytes.fromhex(answer))

    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers([Handler()])
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    try:
        return [[*place, gpus] for place, gpus in sorted(allocated_gpus(socket).items())]
    finally:
        server.stop(None).wait(5)


if __name__ == "__main__":
    name, arguments = json.loads(sys.stdin.readline())
    threading.excepthook = lambda _: None
    sys.stdout.write(json.dumps(globals()[name](*arguments), default=str))
