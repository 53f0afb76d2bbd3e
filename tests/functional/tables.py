"""Schema of the four tables, as the stack deploys it."""

from typing import TYPE_CHECKING

from emulator.plugin.trainguard_localstack.dynamodb_updates import check_updates_once

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import CreateTableInputTypeDef

JOBS = "Jobs"
NODE_STATE = "NodeState"
RULE_STATE = "RuleState"
BOOKKEEPING = "Bookkeeping"

check_updates_once()


def create_tables(client: "DynamoDBClient") -> None:
    """Create the four tables."""
    jobs = _table(JOBS, "TrainingJobName")
    jobs["AttributeDefinitions"] = [*jobs["AttributeDefinitions"], {"AttributeName": "Active", "AttributeType": "S"}]
    jobs["GlobalSecondaryIndexes"] = [
        {
            "IndexName": "ActiveJobs",
            "KeySchema": [
                {"AttributeName": "Active", "KeyType": "HASH"},
                {"AttributeName": "TrainingJobName", "KeyType": "RANGE"},
            ],
            "Projection": {"ProjectionType": "KEYS_ONLY"},
        }
    ]
    client.create_table(**jobs)
    client.create_table(**_table(BOOKKEEPING, "Purpose", "Id"))
    client.create_table(**_table(NODE_STATE, "TrainingJobName", "NodeKind"))
    rows = _table(RULE_STATE, "TrainingJobName", "RuleTarget")
    rows["AttributeDefinitions"] = [
        *rows["AttributeDefinitions"],
        {"AttributeName": "Status", "AttributeType": "S"},
        {"AttributeName": "FiredAt", "AttributeType": "S"},
    ]
    rows["GlobalSecondaryIndexes"] = [
        {
            "IndexName": "ByStatus",
            "KeySchema": [
                {"AttributeName": "Status", "KeyType": "HASH"},
                {"AttributeName": "FiredAt", "KeyType": "RANGE"},
            ],
            "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["Severity", "Kind", "Action"]},
        }
    ]
    client.create_table(**rows)


def _table(name: str, partition_key: str, sort_key: str | None = None) -> "CreateTableInputTypeDef":
    columns = [partition_key] if sort_key is None else [partition_key, sort_key]
    return {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": column, "AttributeType": "S"} for column in columns],
        "KeySchema": [
            {"AttributeName": column, "KeyType": "HASH" if column == partition_key else "RANGE"} for column in columns
        ],
    }
