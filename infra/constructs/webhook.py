"""The webhook of alerts: a rule posts the body that `send_alert` puts on the bus to an address with a secret.

CloudFormation reads address and key from the secret when it deploys, and EventBridge keeps them in a secret of its own:
neither the template nor a function has them. Regions without API destinations, as those of GovCloud, cannot have it.
"""

from aws_cdk import Aws
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.constructs.function import Platform, role_with
from infra.constructs.policy import allow
from trainguard.aws.alert_channels import EVENT_SOURCE
from trainguard.stack.actions.webhook import CLOSES, WEBHOOK_EVENT

# Slack takes a message a second of a webhook.
POSTS_A_SECOND = 1


class Webhook(Construct):
    """The connection that holds the secret, addresses, and a rule for each."""

    def __init__(self, scope: Construct, platform: Platform, secret: str) -> None:
        super().__init__(scope, "Webhook")
        self._config, self._undelivered, self._secret = platform.config, platform.undelivered, secret
        key = self._resolved("key")
        self._connection = events.CfnConnection(
            self,
            "Connection",
            name=platform.config.stack_name,
            description="Key of the webhook that gets TrainGuard's alerts",
            authorization_type="API_KEY",
            auth_parameters=events.CfnConnection.AuthParametersProperty(
                api_key_auth_parameters=events.CfnConnection.ApiKeyAuthParametersProperty(
                    api_key_name="Authorization", api_key_value=key
                )
            ),
        )
        service = platform.config.webhook_service
        if service == "pagerduty":
            # It takes its key in the body alone.
            added = {"BodyParameters": [{"Key": "routing_key", "Value": key, "IsValueSecret": True}]}
            self._connection.add_property_override("AuthParameters.InvocationHttpParameters", added)
        self._send("Post", events.Match.does_not_exist(), self._resolved("url"))
        if service == "opsgenie":
            address = f"{self._resolved('url')}/*/close"
            self._send("Close", events.Match.exists(), address, alias=f"$.detail.{CLOSES}")

    def _resolved(self, field: str) -> str:
        return f"{{{{resolve:secretsmanager:{self._secret}:SecretString:{field}}}}}"

    def _send(self, name: str, closes: list[str], address: str, *, alias: str | None = None) -> None:
        """Make the rule ``name`` that posts to an address, in whose path ``alias`` takes the place of ``*``.

        ``closes`` matches what an event says that it closes.
        """
        scope = Construct(self, name)
        destination = events.CfnApiDestination(
            scope,
            "Destination",
            # A name has at most 64 characters, and a stack 60.
            name=self._config.stack_name + ("-end" if alias else ""),
            description="Where TrainGuard's alerts are posted",
            connection_arn=self._connection.attr_arn,
            http_method="POST",
            invocation_endpoint=address,
            invocation_rate_limit_per_second=POSTS_A_SECOND,
        )
        role = role_with(
            scope,
            "Role",
            config=self._config,
            principal=iam.ServicePrincipal(
                "events.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}}
            ),
            statements=[allow("PostAlerts", ["events:InvokeApiDestination"], [destination.attr_arn])],
        )
        known = events.ApiDestination.from_api_destination_attributes(
            scope,
            "Known",
            api_destination_arn=destination.attr_arn,
            connection=events.Connection.from_connection_attributes(
                scope,
                "KnownConnection",
                connection_arn=self._connection.attr_arn,
                connection_name=self._connection.ref,
                connection_secret_arn=self._connection.attr_secret_arn,
            ),
        )
        target = targets.ApiDestination(
            known,
            event=events.RuleTargetInput.from_event_path("$.detail.body"),
            event_role=role.without_policy_updates(),
            path_parameter_values=[alias] if alias else None,
            query_string_parameters={"identifierType": "alias"} if alias else None,
            dead_letter_queue=self._undelivered.of_rules,
        )
        pattern = events.EventPattern(
            source=[EVENT_SOURCE],
            detail_type=[WEBHOOK_EVENT],
            account=[Aws.ACCOUNT_ID],
            detail={"stack": [self._config.stack_name], CLOSES: closes},
        )
        description = f"Posts TrainGuard's alerts to the webhook: {name.lower()}"
        events.Rule(scope, "Rule", description=description, event_pattern=pattern, targets=[target])
