"""CloudFormation on this machine, as far as the command line asks it: over HTTP, with the client whole."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

REGION, ACCOUNT = "eu-west-1", "111122223333"
OUTPUTS = {
    "JobsTable": "Jobs",
    "NodeStateTable": "NodeState",
    "RuleStateTable": "RuleState",
    "BookkeepingTable": "Bookkeeping",
}


@dataclass
class Refusal:
    """An error that AWS answers with."""

    code: str
    message: str
    status: int = 403


@dataclass
class Stack:
    """A deployed stack."""

    status: str = "CREATE_COMPLETE"
    reason: str = ""
    description: str = "TrainGuard: profiler rules for SageMaker training jobs"
    outputs: Mapping[str, str] = field(default_factory=lambda: OUTPUTS)


@dataclass
class CloudFormation:
    """What the service knows, and what it refuses by action."""

    stacks: dict[str, Stack] = field(default_factory=lambda: {"TrainGuard": Stack()})
    refusals: dict[str, Refusal] = field(default_factory=dict)
    url: str = ""

    def answer(self, request: Mapping[str, str]) -> tuple[int, str]:
        """Return the status and the document of an answer."""
        action = request["Action"]
        refusal = self.refusals.get(action)
        if refusal is None and action == "DescribeStacks" and request["StackName"] not in self.stacks:
            refusal = Refusal("ValidationError", f"Stack with id {request['StackName']} does not exist", 400)
        if refusal is not None:
            error = f"<Error><Code>{refusal.code}</Code><Message>{escape(refusal.message)}</Message></Error>"
            return refusal.status, f"<ErrorResponse>{error}</ErrorResponse>"
        if action == "DescribeStacks":
            name = request["StackName"]
            members = f"<Stacks><member>{_described(name, self.stacks[name])}</member></Stacks>"
        else:
            listed = "".join(f"<member>{_listed(name, stack)}</member>" for name, stack in self.stacks.items())
            members = f"<StackSummaries>{listed}</StackSummaries>"
        return 200, f"<{action}Response><{action}Result>{members}</{action}Result></{action}Response>"


def _described(name: str, stack: Stack) -> str:
    arn = f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/{name}/0b8c4d1e-7a55-4c8e-9a0f-0d4c5b8a1e11"
    outputs = "".join(
        f"<member><OutputKey>{key}</OutputKey><OutputValue>{value}</OutputValue></member>"
        for key, value in stack.outputs.items()
    )
    reason = f"<StackStatusReason>{escape(stack.reason)}</StackStatusReason>" if stack.reason else ""
    return (
        f"<StackId>{arn}</StackId><StackName>{name}</StackName><StackStatus>{stack.status}</StackStatus>{reason}"
        f"<CreationTime>2026-01-31T12:00:00Z</CreationTime><Outputs>{outputs}</Outputs>"
    )


def _listed(name: str, stack: Stack) -> str:
    return (
        f"<StackName>{name}</StackName><StackStatus>{stack.status}</StackStatus>"
        f"<CreationTime>2026-01-31T12:00:00Z</CreationTime>"
        f"<TemplateDescription>{escape(stack.description)}</TemplateDescription>"
    )


@contextmanager
def serving() -> Iterator[CloudFormation]:
    """Serve on a free port."""
    service = CloudFormation()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            status, document = service.answer({name: values[0] for name, values in parse_qs(body).items()})
            self.send_response(status)
            self.send_header("Content-Length", str(len(document.encode())))
            self.end_headers()
            self.wfile.write(document.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
