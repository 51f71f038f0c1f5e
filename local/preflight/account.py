"""What the account and the region must have before the stack can be made."""

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from template import Mistake

CONFIG = Config(connect_timeout=5, read_timeout=10, retries={"max_attempts": 2, "mode": "standard"})
# AWS refuses a reservation that leaves less of the account's concurrency.
UNRESERVED = 100
# The states of a stack that `sam deploy` can update, or create again.
GOOD = {"CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "IMPORT_COMPLETE", "IMPORT_ROLLBACK_COMPLETE", "REVIEW_IN_PROGRESS"}


class Account:
    def __init__(self, region, config=CONFIG):
        self.session = boto3.Session(region_name=region)
        self.region = self.session.region_name
        self.config, self.clients = config, {}

    def client(self, service):
        if service not in self.clients:
            self.clients[service] = self.session.client(service, config=self.config)
        return self.clients[service]

    def call(self, service, operation, **arguments):
        return getattr(self.client(service), operation)(**arguments)

    def check_credentials(self):
        """Raises `Mistake` if no other call can succeed."""
        if not self.region:
            raise Mistake("No region is set: set AWS_DEFAULT_REGION, or `region` in samconfig.toml.")
        try:
            self.call("sts", "get_caller_identity")
        except (BotoCoreError, ClientError) as error:
            raise Mistake(f"AWS does not accept the credentials of this shell: {told(error)}.") from error

    def stack(self, name):
        """The stack of this name, or None."""
        try:
            return self.call("cloudformation", "describe_stacks", StackName=name)["Stacks"][0]
        except ClientError as error:
            if "does not exist" in str(error):
                return None
            raise


def told(error):
    """An error in one line, without its last full stop."""
    return " ".join(str(error).split()).rstrip(".")


def stack_mistakes(name, stack, template):
    """A stack that cannot be updated, or a first deployment whose rollback would fail."""
    status = stack["StackStatus"] if stack else None
    if status and status not in GOOD:
        if status.endswith("_IN_PROGRESS"):
            return [f"Stack {name} is in {status}: wait until that is done."]
        todo = "delete it first (docs/operations.md, \"A first deployment that fails\")"
        if status == "UPDATE_ROLLBACK_FAILED":
            todo = "let CloudFormation continue the rollback: aws cloudformation continue-update-rollback"
        return [f"Stack {name} is in {status} and cannot be updated: {todo}."]
    if status in (None, "REVIEW_IN_PROGRESS") and template["DeletionProtection"] == "true":
        return [f"Stack {name} does not exist yet, and with DeletionProtection=true its rollback would fail: turn it on with the second deployment."]
    return []


def role_mistakes(account, template):
    role = account.call("apigateway", "get_account").get("cloudwatchRoleArn")
    if template["ApiLogsRole"] == "existing" and not role:
        return [f"The account has no role for the access logs of API Gateway in {account.region}: deploy with ApiLogsRole=create."]
    return []


def role_note(account, template, name):
    """A role that the deployment would replace in the account's setting."""
    role = account.call("apigateway", "get_account").get("cloudwatchRoleArn")
    if role and template["ApiLogsRole"] == "create" and f"/{name}-ApiLogsRoleOfAccount" not in role:
        return [f"The account's role for access logs is {role}; the stack sets one of its own. ApiLogsRole=existing keeps it."]
    return []


def concurrency_mistakes(account, template, stack):
    limits = account.call("lambda", "get_account_settings")["AccountLimit"]
    most, workers = limits["ConcurrentExecutions"], int(template["FanOutConcurrency"])
    if template["ReserveConcurrency"] == "false":
        if workers >= most:
            return [
                f"The account has a Lambda concurrency of {most}, which {workers} workers of fan-out (FanOutConcurrency) can use up:"
                " deploy with a smaller FanOutConcurrency, and ask AWS for more (Service Quotas, \"Concurrent executions\")."
            ]
        return []
    functions = template.of_type("AWS::Serverless::Function").values()
    reserved = [one["Properties"]["ReservedConcurrentExecutions"] for one in functions if "ReservedConcurrentExecutions" in one["Properties"]]
    needed = sum(template.number(value["Fn::If"][1]) for value in reserved)
    free = limits["UnreservedConcurrentExecutions"]
    held = {one["ParameterKey"]: one.get("ParameterValue") for one in (stack or {}).get("Parameters", [])}
    if held.get("ReserveConcurrency") == "true":
        # The stack has its reservation already. Only what it reserves more counts.
        own = {name: held.get(name, template[name]) for name in ("FanOutConcurrency", "ReconcileConcurrency")}
        free += needed + sum(int(own[name]) - int(template[name]) for name in own)
    if free - needed < UNRESERVED:
        return [
            f"ReserveConcurrency=true reserves {needed} of Lambda's concurrency, but the account has {free} that is not reserved, and AWS keeps"
            f" {UNRESERVED} of it free: deploy with ReserveConcurrency=false or a smaller FanOutConcurrency, or ask AWS for more."
        ]
    return []


def network_mistakes(account, template):
    """Subnets that do not exist, are of another VPC, or are in one zone."""
    subnets = template.list("SubnetIds")
    if not template["VpcId"] or not subnets:
        return []
    try:
        found = account.call("ec2", "describe_subnets", SubnetIds=subnets)["Subnets"]
    except ClientError as error:
        if "NotFound" in str(error):
            return [f"SubnetIds names a subnet that does not exist in {account.region}: {told(error)}."]
        raise
    strange = [one["SubnetId"] for one in found if one["VpcId"] != template["VpcId"]]
    if strange:
        return [f"SubnetIds has {', '.join(strange)}, which VpcId={template['VpcId']} does not have."]
    zones = {one["AvailabilityZone"] for one in found}
    if len(zones) < 2:
        return [f"All SubnetIds are in {''.join(zones)}: Redis and the functions need subnets in two availability zones or more."]
    return []


def node_mistakes(account, template):
    """A type of node that the region does not offer. AWS lists what can be reserved, which is what it offers."""
    if not template.has("Redis"):
        return []
    kind = template["RedisNodeType"]
    offers = account.call("elasticache", "describe_reserved_cache_nodes_offerings", CacheNodeType=kind)
    if not offers["ReservedCacheNodesOfferings"]:
        return [f"ElastiCache does not offer RedisNodeType={kind} in {account.region}."]
    return []


def mistakes(account, template, name, stack):
    """Every check. One that AWS does not allow is a mistake too: nothing says that it would pass."""
    checks = (
        ("the state of the stack", lambda: stack_mistakes(name, stack, template)),
        ("the account's role for access logs", lambda: role_mistakes(account, template)),
        ("Lambda's concurrency", lambda: concurrency_mistakes(account, template, stack)),
        ("the subnets", lambda: network_mistakes(account, template)),
        ("the type of Redis node", lambda: node_mistakes(account, template)),
    )
    found = []
    for what, check in checks:
        try:
            found += check()
        except (BotoCoreError, ClientError) as error:
            found.append(f"Not checked, {what}: {told(error)}.")
    return found
