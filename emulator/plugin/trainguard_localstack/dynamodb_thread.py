"""LocalStack's DynamoDB service keeps its items in `dynamodb_server` instead of Amazon's Java program."""

import sys

from localstack.constants import DEFAULT_AWS_ACCOUNT_ID
from localstack.services.dynamodb import server
from localstack.utils.common import TMP_THREADS, ShellCommandThread
from localstack.utils.run import FuncThread


def install() -> None:
    """Replace the command that LocalStack starts on the first request for DynamoDB."""

    def start(engine: server.DynamodbServer) -> FuncThread:
        command = [sys.executable, "-m", "trainguard_localstack.dynamodb_server", str(engine.port)]
        # Not restarted after a crash: an empty engine in place of the lost one would hide what happened.
        thread = ShellCommandThread(
            command,
            stdin=True,
            strip_color=True,
            log_listener=server._log_listener,
            name="dynamodb-engine",
            env_vars={"MOTO_ACCOUNT_ID": DEFAULT_AWS_ACCOUNT_ID},
        )
        TMP_THREADS.append(thread)
        thread.start()
        return thread

    server.DynamodbServer.do_start_thread = start
