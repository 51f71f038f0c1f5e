"""Restores tables to a second of the last 35 days and serves from them: `make restore ENV=prod TO=2026-11-26T18:05:00Z`.

    restore.py --to 2026-11-26T18:05:00Z [--environment dev] [--region eu-central-1] [--tables ReadsTable,…] [--dry-run]

It prints each step and each change. A second run with the same options continues where the first one stopped: each step looks at what is there
already. The old tables stay. Exit status: 0 if the stack serves from the restored tables, 1 with a sentence otherwise, 2 if the options are
wrong. docs/operations.md has the runbook, docs/adr/0037 the reasons.
"""

import argparse
import json
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "preflight"))

import account as aws  # noqa: E402
import change  # noqa: E402
from template import Mistake, environment  # noqa: E402

# One invocation of reconcile takes 50 s at most.
CONFIG = Config(connect_timeout=5, read_timeout=70, retries={"max_attempts": 3, "mode": "standard"})
# SAM keeps what it deploys in the bucket of this stack.
SAM_STACK, SAM_BUCKET = "aws-sam-cli-managed-default", "SourceBucket"
# A purge of a queue may take so long.
PURGE_SECONDS = 60
PAUSE_SECONDS = 10
# Restored alone, the first three would give numbers and ids a second time, and the last would import again what users have ended.
NOT_ALONE = ("PostsTable", "NoticesTable", "IdentitiesTable", "MigrationTable")
# Items of IdentitiesTable that keep a user erased. A restore must not take them back.
ERASURES = ("erased#", "left#", "erasures")
RECONCILE, MIGRATE = "ReconcileFunction", "MigrateFunction"


def code_of(error):
    return error.response["Error"]["Code"] if isinstance(error, ClientError) else ""


class Restore:
    def __init__(self, options, sleep=time.sleep):
        self.name, region, _ = environment(options.samconfig, options.environment)
        if not self.name:
            raise Mistake("samconfig.toml names no stack: set stack_name.")
        self.to, self.dry_run, self.sleep = options.to, options.dry_run, sleep
        self.account = aws.Account(options.region or region, CONFIG)
        self.stamp = self.to.strftime("%Y%m%dT%H%M%S")
        self.are_stopped, self.has_looked = False, False
        self.chosen = options.tables

    # ---- calls -------------------------------------------------------------

    def read(self, service, operation, **arguments):
        return self.account.call(service, operation, **arguments)

    def pages(self, service, operation, field, **arguments):
        paginator = self.account.client(service).get_paginator(operation)
        return [one for page in paginator.paginate(**arguments) for one in page.get(field, [])]

    def write(self, service, operation, **arguments):
        """A call that changes something. A dry run prints it only."""
        shown = {name: value if len(str(value)) < 300 else "…" for name, value in arguments.items()}
        words = "would call" if self.dry_run else "calls"
        print(f"  {words} {service}.{operation}({', '.join(f'{name}={value}' for name, value in shown.items())})", flush=True)
        return None if self.dry_run else self.account.call(service, operation, **arguments)

    def until(self, what, holds):
        """Waits for a condition that AWS fulfils."""
        while not (found := holds()):
            if self.dry_run:
                return None
            print(f"  waits for {what}", flush=True)
            self.sleep(PAUSE_SECONDS)
        return found

    # ---- the run -----------------------------------------------------------

    def run(self):
        self.account.check_credentials()
        self.look()
        self.has_looked = True
        for step in (
            self.keep_templates,
            self.restore_tables,
            self.bring_settings,
            self.stop,
            self.keep_erasures,
            self.switch,
            self.start,
            self.import_tables,
            self.bring_template,
            self.compare,
            self.reconcile,
        ):
            print(f"{self.stamp}: {step.__doc__}", flush=True)
            step()

    def advice(self):
        """What to do after a failure."""
        stopped = " The functions are stopped." if self.are_stopped else ""
        return f"{stopped} Run the same command again to continue." if self.has_looked else stopped

    def look(self):
        """Reads what is there: the stack, its tables, and how far an earlier run came."""
        self.settle()
        stack = self.stack
        if stack["StackStatus"] not in aws.GOOD:
            raise Mistake(f"Stack {self.name} is in {stack['StackStatus']}: bring it into a good state first.")
        self.parameters = {one["ParameterKey"]: one.get("ParameterValue", "") for one in stack["Parameters"]}
        resources = self.pages("cloudformation", "list_stack_resources", "StackResourceSummaries", StackName=self.name)
        self.physical = {one["LogicalResourceId"]: one["PhysicalResourceId"] for one in resources if one.get("PhysicalResourceId")}
        self.bucket = self.read("cloudformation", "describe_stack_resource", StackName=SAM_STACK, LogicalResourceId=SAM_BUCKET)
        self.bucket = self.bucket["StackResourceDetail"]["PhysicalResourceId"]
        kept = self.kept()
        current = [self.template(stage) for stage in ("Processed", "Original")]
        release = self.parameters.get("Release")
        if change.is_switched(current[0]) and release != self.stamp:
            raise Mistake(f"The tables of stack {self.name} are being replaced by another restore (Release={release}): finish that one.")
        declared = change.tables(current[0]) | (change.tables(kept[0]) if kept else {})
        self.tables = sorted(self.chosen or declared)
        if unknown := [name for name in self.tables if name not in declared]:
            raise Mistake(f"The stack has no table {', '.join(unknown)}; it has {', '.join(declared)}.")
        if set(self.tables) != set(declared) and (together := [name for name in self.tables if name in NOT_ALONE]):
            raise Mistake(f"{', '.join(together)} cannot be restored without all other tables: leave out --tables.")
        restored = {name: self.restored_name(name) for name in self.tables}
        here = {name: self.physical.get(name) for name in self.tables}
        self.imported = here == restored
        self.switched = self.imported or not any(here.values())
        if not self.switched and not all(here.values()):
            raise Mistake(f"Stack {self.name} lacks {', '.join(name for name in here if not here[name])}: give --tables as in the run before.")
        if self.switched and not kept:
            raise Mistake(f"s3://{self.bucket}/{self.key('original')} is missing: without it the tables cannot be imported.")
        # Before the switch, a deployment may have come after an earlier run.
        self.processed, self.original = kept if self.switched else current
        if not self.switched:
            self.check_times(here)
        self.sources = here

    def check_times(self, sources):
        for name, source in sources.items():
            told = self.read("dynamodb", "describe_continuous_backups", TableName=source)["ContinuousBackupsDescription"]
            window = told.get("PointInTimeRecoveryDescription", {})
            earliest, latest = window.get("EarliestRestorableDateTime"), window.get("LatestRestorableDateTime")
            if not earliest or not latest:
                raise Mistake(f"{name} ({source}) has no point-in-time recovery.")
            if not earliest <= self.to <= latest:
                raise Mistake(f"{name} ({source}) can be restored to times from {shown(earliest)} to {shown(latest)} only.")

    def restored_name(self, table):
        return f"{self.name}-{table}-{self.stamp}"

    @property
    def stack(self):
        stack = self.account.stack(self.name)
        if not stack:
            raise Mistake(f"There is no stack {self.name} in {self.account.region}.")
        return stack

    def settle(self):
        """Waits until the stack is not changing. Returns its status."""
        return self.until(f"stack {self.name}", lambda: None if (status := self.stack["StackStatus"]).endswith("_IN_PROGRESS") else status)

    def template(self, stage):
        body = self.read("cloudformation", "get_template", StackName=self.name, TemplateStage=stage)["TemplateBody"]
        if stage == "Original":
            return body if isinstance(body, str) else json.dumps(body)
        return json.loads(body) if isinstance(body, str) else json.loads(json.dumps(body))

    # ---- templates -----------------------------------------------------------

    def key(self, which):
        return f"{self.name}/restore/{self.stamp}/{which}"

    def url(self, which):
        suffix = "amazonaws.com.cn" if self.account.region.startswith("cn-") else "amazonaws.com"
        return f"https://{self.bucket}.s3.{self.account.region}.{suffix}/{self.key(which)}"

    def kept(self):
        """The templates of the stack from before, as an earlier run has kept them."""
        found = []
        for which in ("processed", "original"):
            try:
                found.append(self.read("s3", "get_object", Bucket=self.bucket, Key=self.key(which))["Body"].read().decode())
            except ClientError as error:
                if code_of(error) not in ("NoSuchKey", "404"):
                    raise
                return None
        return json.loads(found[0]), found[1]

    def put(self, which, text):
        self.write("s3", "put_object", Bucket=self.bucket, Key=self.key(which), Body=text.encode())

    def keep_templates(self):
        """keep the templates of the stack"""
        if self.switched:
            return
        # `processed` last: `kept` needs both.
        self.put("original", self.original)
        self.put("processed", json.dumps(self.processed))

    # ---- tables ----------------------------------------------------------------

    def table(self, name):
        """A table's description, or None."""
        try:
            return self.read("dynamodb", "describe_table", TableName=name)["Table"]
        except ClientError as error:
            if code_of(error) == "ResourceNotFoundException":
                return None
            raise

    def ready(self, name):
        """The description of a table that is not changing."""
        table = self.table(name)
        indexes = (table or {}).get("GlobalSecondaryIndexes", [])
        return table if table and table["TableStatus"] == "ACTIVE" and all(one["IndexStatus"] == "ACTIVE" for one in indexes) else None

    def restore_tables(self):
        """restore the tables"""
        if self.switched:
            return
        for name, source in self.sources.items():
            if not self.table(self.restored_name(name)):
                target = self.restored_name(name)
                self.write("dynamodb", "restore_table_to_point_in_time", SourceTableName=source, TargetTableName=target, RestoreDateTime=self.to)
        for name in self.tables:
            self.until(f"table {self.restored_name(name)}", lambda name=name: self.ready(self.restored_name(name)))

    def bring_settings(self):
        """bring back streams, expiry, point-in-time recovery, tags and protection, which a restore leaves out"""
        if self.switched:
            return
        for name, source in self.sources.items():
            self.bring_settings_of(self.restored_name(name), self.table(source))

    def bring_settings_of(self, target, source):
        now = self.table(target) or {}
        same = ("StreamSpecification", "OnDemandThroughput", "DeletionProtectionEnabled")
        for setting in same:
            if source.get(setting) and source[setting] != now.get(setting):
                self.write("dynamodb", "update_table", TableName=target, **{setting: source[setting]})
                self.until(f"table {target}", lambda: self.ready(target))
        expiry = self.expiry(source["TableName"])
        if expiry and (not now or self.expiry(target) != expiry):
            wanted = {"AttributeName": expiry, "Enabled": True}
            self.write("dynamodb", "update_time_to_live", TableName=target, TimeToLiveSpecification=wanted)
        if not now or not self.recovers(target):
            self.until(f"point-in-time recovery of {target}", lambda: self.recover(target))
        arn = now.get("TableArn") or source["TableArn"].replace(source["TableName"], target)
        tags = [tag for tag in self.tags(source["TableArn"]) if not tag["Key"].startswith("aws:")]
        known = self.tags(arn) if now else []
        if missing := [tag for tag in tags if tag not in known]:
            self.write("dynamodb", "tag_resource", ResourceArn=arn, Tags=missing)

    def expiry(self, table):
        told = self.read("dynamodb", "describe_time_to_live", TableName=table)["TimeToLiveDescription"]
        return told.get("AttributeName") if told["TimeToLiveStatus"] in ("ENABLED", "ENABLING") else None

    def recovers(self, table):
        told = self.read("dynamodb", "describe_continuous_backups", TableName=table)["ContinuousBackupsDescription"]
        return told.get("PointInTimeRecoveryDescription", {}).get("PointInTimeRecoveryStatus") == "ENABLED"

    def recover(self, table):
        """Turns recovery on. A new table refuses it for a while."""
        try:
            wanted = {"PointInTimeRecoveryEnabled": True}
            self.write("dynamodb", "update_continuous_backups", TableName=table, PointInTimeRecoverySpecification=wanted)
            return True
        except ClientError as error:
            if code_of(error) == "ContinuousBackupsUnavailableException":
                return False
            raise

    def tags(self, arn):
        return self.pages("dynamodb", "list_tags_of_resource", "Tags", ResourceArn=arn)

    # ---- the switch ------------------------------------------------------------

    def functions(self):
        """Logical ids of the functions, with their declarations."""
        return {name: one for name, one in self.processed["Resources"].items() if one["Type"] == "AWS::Lambda::Function"}

    def is_stopped(self, function):
        told = self.read("lambda", "get_function_concurrency", FunctionName=self.physical[function])
        return told.get("ReservedConcurrentExecutions") == 0

    def stop(self):
        """stop all functions: requests get 503 until the switch is done"""
        if self.switched:
            return
        self.are_stopped = not self.dry_run
        for function in self.functions():
            if not self.is_stopped(function):
                self.write("lambda", "put_function_concurrency", FunctionName=self.physical[function], ReservedConcurrentExecutions=0)
        # An invocation in flight may take its whole timeout. Nothing invokes `migrate` without a legacy system.
        quiet = [] if "true" in (self.parameters.get("LegacyFollow"), self.parameters.get("LegacyWriteBack")) else [MIGRATE]
        longest = max(one["Properties"]["Timeout"] for name, one in self.functions().items() if name not in quiet)
        print(f"  waits {longest} s, the longest timeout", flush=True)
        # Also if an earlier run has stopped them: how long ago is not known.
        self.pause(longest)

    def pause(self, seconds):
        if not self.dry_run:
            self.sleep(seconds)

    def keep_erasures(self):
        """keep users erased who have left since then"""
        name = "IdentitiesTable"
        if self.switched or name not in self.tables:
            return
        now, then = (self.erasures(table) for table in (self.sources[name], self.restored_name(name)))
        for item in now.values():
            if then.get(item["identity"]["S"]) != item:
                self.write("dynamodb", "put_item", TableName=self.restored_name(name), Item=item)
        # A user who was leaving then and has left since.
        for identity in then.keys() - now.keys():
            self.write("dynamodb", "delete_item", TableName=self.restored_name(name), Key={"identity": {"S": identity}})

    def erasures(self, table):
        if self.dry_run and not self.table(table):
            return {}
        items = self.pages("dynamodb", "scan", "Items", TableName=table, ConsistentRead=True)
        return {item["identity"]["S"]: item for item in items if item["identity"]["S"].startswith(ERASURES)}

    def switch(self):
        """give the functions, roles, streams and alarms the restored tables"""
        if self.switched:
            return
        texts = {name: self.texts(name) for name in self.tables}
        try:
            template = change.switched(self.processed, texts)
        except (change.Dangling, KeyError) as error:
            raise Mistake(f"The template of the stack cannot be changed: {error}.") from error
        self.put("switched", json.dumps(template))
        try:
            self.deploy("switched", "UPDATE", {"Release": self.stamp}, may_remove=self.tables)
        except Mistake:
            # The stack has its old tables again.
            self.give_concurrency_back(self.functions())
            self.are_stopped = False
            raise

    def texts(self, name):
        target = self.restored_name(name)
        table = self.table(target)
        if not table and self.dry_run:
            arn = self.table(self.sources[name])["TableArn"].replace(self.sources[name], target)
            return {"Ref": target, "Arn": arn, "StreamArn": f"{arn}/stream/…"}
        found = {"Ref": target, "Arn": table["TableArn"]}
        return found | ({"StreamArn": table["LatestStreamArn"]} if table.get("LatestStreamArn") else {})

    def deploy(self, which, kind, parameters=(), may_remove=(), imports=()):
        """Makes and runs a change set with a kept template. Without changes it does nothing."""
        self.settle()
        named = f"restore-{self.stamp}-{which}"
        mine = {"StackName": self.name, "ChangeSetName": named}
        given = dict(parameters)
        values = [{"ParameterKey": name, "UsePreviousValue": True} for name in self.parameters if name not in given]
        values += [{"ParameterKey": name, "ParameterValue": value} for name, value in given.items()]
        capabilities = ["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"]
        if not self.dry_run:
            try:
                # From an earlier run that was interrupted.
                self.account.call("cloudformation", "delete_change_set", **mine)
            except ClientError as error:
                if code_of(error) not in ("ChangeSetNotFound", "ChangeSetNotFoundException"):
                    raise
        more = {"ResourcesToImport": list(imports)} if imports else {}
        more |= {"ChangeSetType": kind, "TemplateURL": self.url(which), "Parameters": values, "Capabilities": capabilities}
        self.write("cloudformation", "create_change_set", **mine, **more)
        if self.dry_run:
            self.write("cloudformation", "execute_change_set", **mine)
            return
        change_set = self.until(f"change set {named}", lambda: self.made(mine))
        if change_set["Status"] == "FAILED":
            reason = change_set.get("StatusReason", "")
            if "didn't contain changes" in reason or "No updates are to be performed" in reason:
                return
            raise Mistake(f"CloudFormation refuses the change set {named}: {reason.rstrip('.')}.")
        self.check_changes(mine, may_remove)
        self.write("cloudformation", "execute_change_set", **mine)
        status = self.settle()
        if status not in ("UPDATE_COMPLETE", "IMPORT_COMPLETE"):
            raise Mistake(f"The change set {named} ended as {status}: the events of stack {self.name} say why.")

    def made(self, mine):
        told = self.read("cloudformation", "describe_change_set", **mine)
        return told if told["Status"] in ("CREATE_COMPLETE", "FAILED") else None

    def check_changes(self, mine, may_remove):
        """No table is replaced, and none leaves the stack but these."""
        changes = self.pages("cloudformation", "describe_change_set", "Changes", **mine)
        for one in (one["ResourceChange"] for one in changes if one.get("Type") == "Resource"):
            if one["ResourceType"] != change.TABLE:
                continue
            name, action = one["LogicalResourceId"], one["Action"]
            if action == "Import" or (action == "Remove" and name in may_remove) or (action == "Modify" and one.get("Replacement") != "True"):
                continue
            raise Mistake(f"The change set {mine['ChangeSetName']} would {action.lower()} {name}: it was not run.")

    def start(self):
        """empty the queues, forget all views, and start the functions"""
        stopped = [name for name in self.functions() if self.dry_run or self.is_stopped(name)]
        if not stopped:
            return
        self.are_stopped = not self.dry_run
        queues = [name for name, one in self.processed["Resources"].items() if one["Type"] == "AWS::SQS::Queue"]
        for name in queues:
            try:
                self.write("sqs", "purge_queue", QueueUrl=self.physical[name])
            except ClientError as error:
                if "PurgeQueueInProgress" not in code_of(error):
                    raise
        self.pause(PURGE_SECONDS)
        # Views of the old tables would count as current, and the numbers of lost posts are given again.
        self.give_concurrency_back([RECONCILE])
        self.invoke_reconcile({"job": "forget"})
        self.give_concurrency_back([name for name in stopped if name != RECONCILE])
        self.are_stopped = False

    def give_concurrency_back(self, functions):
        for function in functions:
            reserved = self.functions()[function]["Properties"].get("ReservedConcurrentExecutions")
            here = {"FunctionName": self.physical[function]}
            if reserved and self.parameters.get("ReserveConcurrency") == "true":
                value = reserved["Fn::If"][1] if isinstance(reserved, dict) else reserved
                value = int(self.parameters[value["Ref"]]) if isinstance(value, dict) else value
                self.write("lambda", "put_function_concurrency", **here, ReservedConcurrentExecutions=value)
            else:
                self.write("lambda", "delete_function_concurrency", **here)

    def invoke_reconcile(self, event):
        """Invokes reconcile until it has no next position."""
        while event:
            function = f"{self.physical[RECONCILE]}:live"
            told = self.write("lambda", "invoke", FunctionName=function, Payload=json.dumps(event).encode())
            if self.dry_run:
                return
            response = json.loads(told["Payload"].read() or "null")
            if told.get("FunctionError"):
                raise Mistake(f"reconcile failed: {response.get('errorType')}: {str(response.get('errorMessage')).rstrip('.')}.")
            event = {**event, "from": response["next"]} if response.get("next") else None

    # ---- back to normal --------------------------------------------------------

    def import_tables(self):
        """import the restored tables into the stack"""
        if self.imported:
            return
        declared = change.tables(self.processed)
        texts = {name: self.texts(name) for name in self.tables}
        template = change.with_tables(change.switched(self.processed, texts), self.processed, self.tables)
        self.put("imported", json.dumps(template))
        targets = [(name, {"TableName": self.restored_name(name)}) for name in declared if name in self.tables]
        imports = [{"ResourceType": change.TABLE, "LogicalResourceId": name, "ResourceIdentifier": target} for name, target in targets]
        self.deploy("imported", "IMPORT", imports=imports)

    def bring_template(self):
        """give the stack its own template again, which refers to the imported tables"""
        self.deploy("original", "UPDATE")

    def compare(self):
        """compare the restored tables with their declarations"""
        if self.dry_run:
            return
        for name in self.tables:
            told = self.read("cloudformation", "detect_stack_resource_drift", StackName=self.name, LogicalResourceId=name)["StackResourceDrift"]
            if told["StackResourceDriftStatus"] not in ("IN_SYNC", "NOT_CHECKED"):
                places = ", ".join(one["PropertyPath"] for one in told.get("PropertyDifferences", []))
                print(f"note: {name} differs from the template: {places or told['StackResourceDriftStatus']}.")

    def reconcile(self):
        """begin a walk of reconcile over all users, which each minute continues"""
        function = f"{self.physical[RECONCILE]}:live"
        event = {"job": "users", "share": 1, "from": "keys 0"}
        self.write("lambda", "invoke", FunctionName=function, InvocationType="Event", Payload=json.dumps(event).encode())


def shown(time):
    return time.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text):
    """A second with its offset from UTC."""
    found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    if found.tzinfo is None or found.microsecond:
        raise ValueError("no offset")
    return found.astimezone(timezone.utc)


def names(text):
    return [name.strip() for name in text.split(",") if name.strip()]


def main(arguments=None, sleep=time.sleep):
    parser = argparse.ArgumentParser(prog="restore", description="Restores tables to an earlier second and serves from them.")
    parser.add_argument("--to", required=True, type=moment, help="the second, such as 2026-11-26T18:05:00Z")
    parser.add_argument("--environment", default="dev", help="the environment of samconfig.toml (dev)")
    parser.add_argument("--region", help="the region; otherwise that of samconfig.toml or of the shell")
    parser.add_argument("--tables", type=names, default=[], help="logical ids, separated by commas; otherwise all tables")
    parser.add_argument("--dry-run", action="store_true", help="print each call that would change something, and make none")
    parser.add_argument("--samconfig", default="samconfig.toml", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    restore = None
    try:
        restore = Restore(options, sleep)
        restore.run()
    except (Mistake, BotoCoreError, ClientError) as error:
        print(f"mistake: {aws.told(error)}.{restore.advice() if restore else ''}")
        sys.exit(1)
    print("restore: nothing was changed" if options.dry_run else "restore: the stack serves from the restored tables; reconcile walks over all users")


if __name__ == "__main__":
    main()
