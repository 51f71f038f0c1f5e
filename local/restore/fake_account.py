"""An account with one deployed stack, for the tests of `restore.py`: CloudFormation, DynamoDB, Lambda, S3 and SQS, as far as a restore calls them.

CloudFormation does what AWS documents: a table that leaves the template stays if its policy says so, a table that comes in an update is made anew,
and an import may add resources and change nothing else.
"""

import copy
import json
import re
from datetime import datetime, timedelta, timezone
from urllib.parse import unquote, urlsplit

import change
from fake_aws import STACK, Answers, members, xml

TABLE = "AWS::DynamoDB::Table"
BUCKET = "sam-bucket"
EPOCH = datetime(2026, 11, 26, 18, 0, tzinfo=timezone.utc)
PSEUDO = {"AWS::Region": "eu-central-1", "AWS::StackName": "tidemark"}
BUSY = 2  # looks until what was begun is done


class Refused(Exception):
    """An error of the service: code and message."""


class Account(Answers):
    """`expanded` and `original` are the template as SAM expands it, and as it was deployed."""

    def __init__(self, expanded, original, parameters):
        super().__init__()
        self.expand = {original: expanded}
        self.original, self.processed, self.parameters = original, expanded, dict(parameters)
        self.status, self.busy, self.change_sets = "UPDATE_COMPLETE", 0, {}
        self.objects, self.tables, self.stopped = {}, {}, {}
        self.purged, self.events, self.invocations = [], [], []
        # The resources whose properties each change set has changed, and the changes that were asked for.
        self.changed, self.asked = [], []
        self.physical = {name: f"tidemark-{name}-OLD" for name in expanded["Resources"]}
        for name, one in expanded["Resources"].items():
            if one["Type"] == "AWS::SQS::Queue":
                self.physical[name] = f"https://sqs.eu-central-1.amazonaws.com/123456789012/{name}"
            if one["Type"] == TABLE:
                self.make_table(self.physical[name], one["Properties"])
        # The number of changes until one fails, and whether it is done in spite of that.
        self.fails_after, self.fails_late, self.writes = None, False, 0

    # ---- requests ------------------------------------------------------------

    def answer(self, service, operation, arguments):
        if service in ("sts", "apigateway", "ec2", "elasticache"):
            return super().answer(service, operation, arguments)
        try:
            if not self.changes(service, operation):
                return 200, getattr(self, f"on_{service}")(operation, arguments)
            self.writes += 1
            self.asked.append(f"{service} {operation.split('/')[0]}")
            fails = self.fails_after is not None and self.writes == self.fails_after
            if fails and not self.fails_late:
                raise Refused("AccessDeniedException", "the machine of the operator was cut off")
            body = getattr(self, f"on_{service}")(operation, arguments)
            if fails:
                raise Refused("AccessDeniedException", "the response was lost")
            self.events.append(f"{service} {operation.split('?')[0]}")
            return 200, body
        except Refused as refused:
            return 400, self.error(service, *refused.args)

    @staticmethod
    def changes(service, operation):
        if service in ("s3", "lambda"):
            return not operation.startswith("GET")
        return not re.match(r"(Describe|Get|List|Scan|Detect)", operation)

    @staticmethod
    def error(service, code, message):
        told = f"<Code>{code}</Code><Message>{message}</Message>"
        if service == "s3":
            return f"<Error>{told}</Error>"
        if service == "cloudformation":
            return f"<ErrorResponse><Error><Type>Sender</Type>{told}</Error></ErrorResponse>"
        return json.dumps({"__type": f"com.amazonaws#{code}", "message": message, "Message": message})

    # ---- CloudFormation --------------------------------------------------------

    def on_cloudformation(self, operation, arguments):
        asked = {name: values[0] for name, values in arguments.items()}
        return xml(operation, getattr(self, f"cfn_{operation}")(asked), "http://cloudformation.amazonaws.com/doc/2010-05-15/")

    def tick(self):
        if self.busy:
            self.busy -= 1
            if not self.busy:
                self.status = self.next_status

    def begin(self, during, after):
        self.status, self.next_status, self.busy = during, after, BUSY

    def cfn_DescribeStacks(self, _):
        self.tick()
        pairs = (f"<member><ParameterKey>{name}</ParameterKey><ParameterValue>{value}</ParameterValue></member>" for name, value in self.parameters.items())
        fields = f"<StackId>{STACK}</StackId><StackName>tidemark</StackName><CreationTime>2026-01-01T00:00:00Z</CreationTime>"
        return members("Stacks", [f"<member>{fields}<StackStatus>{self.status}</StackStatus>{members('Parameters', pairs)}</member>"])

    def cfn_ListStackResources(self, _):
        rest = "<ResourceType>x</ResourceType><ResourceStatus>CREATE_COMPLETE</ResourceStatus><LastUpdatedTimestamp>2026-01-01T00:00:00Z</LastUpdatedTimestamp>"
        names = ((name, self.physical[name]) for name in self.processed["Resources"])
        ids = (f"<LogicalResourceId>{name}</LogicalResourceId><PhysicalResourceId>{physical}</PhysicalResourceId>" for name, physical in names)
        return members("StackResourceSummaries", [f"<member>{one}{rest}</member>" for one in ids])

    def cfn_DescribeStackResource(self, asked):
        assert asked["StackName"] == "aws-sam-cli-managed-default"
        ids = f"<LogicalResourceId>SourceBucket</LogicalResourceId><PhysicalResourceId>{BUCKET}</PhysicalResourceId>"
        return f"<StackResourceDetail>{ids}</StackResourceDetail>"

    def cfn_GetTemplate(self, asked):
        text = self.original if asked["TemplateStage"] == "Original" else json.dumps(self.processed)
        return f"<TemplateBody>{text.replace('&', '&amp;').replace('<', '&lt;').replace('>', '&gt;')}</TemplateBody>"

    def cfn_DeleteChangeSet(self, asked):
        if not self.change_sets.pop(asked["ChangeSetName"], None):
            raise Refused("ChangeSetNotFound", "there is none")
        return ""

    def cfn_CreateChangeSet(self, asked):
        if self.busy:
            raise Refused("ValidationError", "the stack is changing")
        if asked["ChangeSetName"] in self.change_sets:
            raise Refused("AlreadyExistsException", "it exists")
        text = self.objects[unquote(urlsplit(asked["TemplateURL"]).path.lstrip("/"))]
        processed = copy.deepcopy(self.expand[text]) if text in self.expand else json.loads(text)
        listed = lambda prefix: sorted({int(key.split(".")[2]) for key in asked if key.startswith(f"{prefix}.member.")})
        parameters = {}
        for index in listed("Parameters"):
            name = asked[f"Parameters.member.{index}.ParameterKey"]
            parameters[name] = asked.get(f"Parameters.member.{index}.ParameterValue", self.parameters[name])
        imports = {}
        for index in listed("ResourcesToImport"):
            at = f"ResourcesToImport.member.{index}"
            imports[asked[f"{at}.LogicalResourceId"]] = asked[f"{at}.ResourceIdentifier.entry.1.value"]
        made = {"text": text, "processed": processed, "parameters": parameters, "imports": imports, "kind": asked["ChangeSetType"], "looks": BUSY}
        made["reason"] = self.refusal(made)
        self.change_sets[asked["ChangeSetName"]] = made
        return f"<Id>{asked['ChangeSetName']}</Id>"

    def refusal(self, made):
        """Why CloudFormation does not make this change set, or None."""
        before, after = self.processed, made["processed"]
        names = set(after["Resources"]) | set(self.parameters) | set(PSEUDO)
        for name in change.references(after["Resources"]) | change.references(after.get("Outputs", {})):
            if name not in names and not name.startswith("AWS::"):
                return f"Template format error: Unresolved resource dependencies [{name}] in the Resources block"
        if set(made["parameters"]) != set(self.parameters):
            return "Parameters must have values"
        new = set(after["Resources"]) - set(before["Resources"])
        if made["kind"] == "IMPORT":
            if new != set(made["imports"]) or set(before["Resources"]) - set(after["Resources"]):
                return "An import adds the resources to import and nothing else"
            rest = {**after, "Resources": {name: one for name, one in after["Resources"].items() if name not in new}}
            if rest != before or made["parameters"] != self.parameters:
                return "As part of the import operation, you cannot modify or add [Outputs]"
            for name, table in made["imports"].items():
                if table not in self.tables or "DeletionPolicy" not in after["Resources"][name]:
                    return f"{name} cannot be imported"
            return None
        same = made["parameters"] == self.parameters and before["Resources"].keys() == after["Resources"].keys()
        if same and self.resolved(before, self.parameters) == self.resolved(after, made["parameters"]):
            return "The submitted information didn't contain changes. Submit different information to create a change set."
        return None

    def cfn_DescribeChangeSet(self, asked):
        made = self.change_sets[asked["ChangeSetName"]]
        made["looks"] -= made["looks"] > 0
        if made["looks"]:
            return "<Status>CREATE_IN_PROGRESS</Status>"
        if made["reason"]:
            return f"<Status>FAILED</Status><StatusReason>{made['reason']}</StatusReason>"
        changes = []
        for name, kind, action in self.table_changes(made):
            fields = f"<Action>{action}</Action><LogicalResourceId>{name}</LogicalResourceId><ResourceType>{kind}</ResourceType>"
            changes.append(f"<member><Type>Resource</Type><ResourceChange>{fields}</ResourceChange></member>")
        return f"<Status>CREATE_COMPLETE</Status>{members('Changes', changes)}"

    def table_changes(self, made):
        before, after = (change_tables(one) for one in (self.processed, made["processed"]))
        yield from ((name, TABLE, "Remove") for name in before.keys() - after.keys())
        yield from ((name, TABLE, "Import" if name in made["imports"] else "Add") for name in after.keys() - before.keys())

    def cfn_ExecuteChangeSet(self, asked):
        made = self.change_sets.pop(asked["ChangeSetName"])
        assert not made["reason"], made["reason"]
        for name, _, action in self.table_changes(made):
            if action == "Remove" and not self.processed["Resources"][name]["DeletionPolicy"].startswith("Retain"):
                del self.tables[self.physical[name]]
            if action == "Add":
                self.physical[name] = f"tidemark-{name}-NEW"
                self.make_table(self.physical[name], made["processed"]["Resources"][name]["Properties"])
        before = self.resolved(self.processed, self.parameters)
        self.physical |= made["imports"]
        for name in made["processed"]["Resources"]:
            self.physical.setdefault(name, f"tidemark-{name}-NEW")
        after = self.resolved(made["processed"], made["parameters"])
        self.changed.append({name for name in before.keys() & after.keys() if before[name]["Properties"] != after[name]["Properties"]})
        self.original, self.processed, self.parameters = made["text"], made["processed"], made["parameters"]
        verb = made["kind"]
        self.begin(f"{verb}_IN_PROGRESS", f"{verb}_COMPLETE")
        self.events.append(f"executed {verb}")
        return ""

    def resolved(self, template, parameters):
        """The resources with the texts of the references, so far as tables and parameters are concerned."""
        tables = change_tables(template)

        def attribute(name, part):
            table = self.tables[self.physical[name]]
            return table["LatestStreamArn"] if part == "StreamArn" else table["TableArn"]

        def visit(value):
            if isinstance(value, list):
                return [visit(one) for one in value]
            if not isinstance(value, dict):
                return value
            if value.keys() == {"Ref"}:
                name = value["Ref"]
                return self.physical[name] if name in tables else parameters.get(name, value)
            if value.keys() == {"Fn::GetAtt"}:
                argument = value["Fn::GetAtt"]
                name, part = argument.split(".", 1) if isinstance(argument, str) else argument
                return attribute(name, part) if name in tables else value
            if value.keys() == {"Fn::Sub"}:
                def text(match):
                    name, _, part = match[1].partition(".")
                    if name in tables:
                        return attribute(name, part) if part else self.physical[name]
                    return str(parameters.get(name, match[0]))

                pattern, own = (value["Fn::Sub"], None) if isinstance(value["Fn::Sub"], str) else value["Fn::Sub"]
                pattern = re.sub(r"\$\{([A-Za-z0-9.]+)\}", text, pattern)
                return {"Fn::Sub": pattern if own is None else [pattern, visit(own)]}
            return {key: visit(one) for key, one in value.items()}

        # `Fn::Sub` of nothing that is left to substitute is a text.
        def plain(value):
            if isinstance(value, list):
                return [plain(one) for one in value]
            if isinstance(value, dict):
                if value.keys() == {"Fn::Sub"} and isinstance(value["Fn::Sub"], str) and "${" not in value["Fn::Sub"]:
                    return value["Fn::Sub"]
                return {key: plain(one) for key, one in value.items()}
            return value

        return plain(visit({name: one for name, one in template["Resources"].items() if one["Type"] != TABLE}))

    def serves_from(self):
        """The tables in the environment of each function, by variable."""
        functions = {name: one for name, one in self.resolved(self.processed, self.parameters).items() if one["Type"] == "AWS::Lambda::Function"}
        variables = {name: one["Properties"]["Environment"]["Variables"] for name, one in functions.items()}
        return {name: {key: value for key, value in of.items() if key.endswith("_TABLE")} for name, of in variables.items()}

    def cfn_DetectStackResourceDrift(self, asked):
        name = asked["LogicalResourceId"]
        wanted, table = self.processed["Resources"][name]["Properties"], self.tables[self.physical[name]]
        here = {
            "StreamSpecification": table.get("StreamSpecification", {}).get("StreamViewType"),
            "TimeToLiveSpecification": table["expiry"],
            "PointInTimeRecoverySpecification": table["recovers"],
        }
        expected = {
            "StreamSpecification": wanted.get("StreamSpecification", {}).get("StreamViewType"),
            "TimeToLiveSpecification": wanted.get("TimeToLiveSpecification", {}).get("AttributeName"),
            "PointInTimeRecoverySpecification": True,
        }
        rest = "<ExpectedValue>x</ExpectedValue><ActualValue>y</ActualValue><DifferenceType>NOT_EQUAL</DifferenceType>"
        differences = [f"<member><PropertyPath>/{key}</PropertyPath>{rest}</member>" for key in here if here[key] != expected[key]]
        fields = f"<StackId>{STACK}</StackId><LogicalResourceId>{name}</LogicalResourceId><ResourceType>{TABLE}</ResourceType>"
        fields += f"<Timestamp>2026-01-01T00:00:00Z</Timestamp>{members('PropertyDifferences', differences)}"
        status = "MODIFIED" if differences else "IN_SYNC"
        return f"<StackResourceDrift>{fields}<StackResourceDriftStatus>{status}</StackResourceDriftStatus></StackResourceDrift>"

    # ---- DynamoDB -----------------------------------------------------------------

    def make_table(self, name, properties, restored=False):
        arn = f"arn:aws:dynamodb:eu-central-1:123456789012:table/{name}"
        view = None if restored else properties.get("StreamSpecification")
        self.tables[name] = {
            "TableName": name, "TableArn": arn, "TableStatus": "ACTIVE", "looks": 0, "items": {}, "DeletionProtectionEnabled": False,
            "expiry": None if restored else properties.get("TimeToLiveSpecification", {}).get("AttributeName"),
            "recovers": not restored, "refuses_recovery": 1 if restored else 0, "tags": [],
        }
        if view:
            self.stream(self.tables[name], {"StreamEnabled": True, **view})
        if not restored:
            self.tables[name]["tags"] = [{"Key": "aws:cloudformation:stack-name", "Value": "tidemark"}, {"Key": "team", "Value": "feeds"}]

    @staticmethod
    def stream(table, specification):
        table["StreamSpecification"] = specification
        table["LatestStreamArn"] = f"{table['TableArn']}/stream/2026-11-26T18:30:00.000"

    def on_dynamodb(self, operation, asked):
        name = asked.get("TableName") or asked.get("TargetTableName") or asked.get("ResourceArn", "").rsplit("/", 1)[-1]
        if operation == "RestoreTableToPointInTime":
            return self.restore(name, asked)
        if name not in self.tables:
            raise Refused("ResourceNotFoundException", f"no table {name}")
        return json.dumps(getattr(self, f"ddb_{operation}")(self.tables[name], asked))

    def restore(self, name, asked):
        if name in self.tables:
            raise Refused("TableAlreadyExistsException", name)
        source = self.tables[asked["SourceTableName"]]
        self.make_table(name, {}, restored=True)
        items = {key: item for key, (item, at) in source["items"].items() if at <= asked["RestoreDateTime"]}
        self.tables[name] |= {"TableStatus": "CREATING", "looks": BUSY, "restored": asked["RestoreDateTime"]}
        self.tables[name]["items"] = {key: (item, 0) for key, item in items.items()}
        return json.dumps({"TableDescription": {"TableName": name}})

    def usable(self, table):
        if table["TableStatus"] != "ACTIVE":
            raise Refused("ResourceInUseException", f"{table['TableName']} is {table['TableStatus']}")

    def ddb_DescribeTable(self, table, _):
        table["looks"] -= table["looks"] > 0
        if not table["looks"]:
            table["TableStatus"] = "ACTIVE"
        return {"Table": {key: value for key, value in table.items() if key[0].isupper()}}

    def ddb_UpdateTable(self, table, asked):
        self.usable(table)
        settings = [key for key in asked if key != "TableName"]
        assert len(settings) == 1, "AWS accepts one of these at a time"
        if "StreamSpecification" in asked:
            if "StreamSpecification" in table:
                raise Refused("ValidationException", "the table has a stream")
            self.stream(table, asked["StreamSpecification"])
        else:
            table[settings[0]] = asked[settings[0]]
        table["TableStatus"], table["looks"] = "UPDATING", BUSY
        return {"TableDescription": {"TableName": table["TableName"]}}

    def ddb_DescribeTimeToLive(self, table, _):
        told = {"TimeToLiveStatus": "ENABLED", "AttributeName": table["expiry"]} if table["expiry"] else {"TimeToLiveStatus": "DISABLED"}
        return {"TimeToLiveDescription": told}

    def ddb_UpdateTimeToLive(self, table, asked):
        self.usable(table)
        table["expiry"] = asked["TimeToLiveSpecification"]["AttributeName"]
        return {"TimeToLiveSpecification": asked["TimeToLiveSpecification"]}

    def ddb_DescribeContinuousBackups(self, table, _):
        told = {"PointInTimeRecoveryStatus": "ENABLED" if table["recovers"] else "DISABLED"}
        if table["recovers"]:
            told["EarliestRestorableDateTime"] = (EPOCH - timedelta(days=35)).timestamp()
            told["LatestRestorableDateTime"] = (EPOCH + timedelta(minutes=30)).timestamp()
        return {"ContinuousBackupsDescription": {"ContinuousBackupsStatus": "ENABLED", "PointInTimeRecoveryDescription": told}}

    def ddb_UpdateContinuousBackups(self, table, _):
        if table["refuses_recovery"]:
            table["refuses_recovery"] -= 1
            raise Refused("ContinuousBackupsUnavailableException", "wait")
        table["recovers"] = True
        return {}

    def ddb_ListTagsOfResource(self, table, _):
        return {"Tags": table["tags"]}

    def ddb_TagResource(self, table, asked):
        assert not any(tag["Key"].startswith("aws:") for tag in asked["Tags"])
        table["tags"] = table["tags"] + asked["Tags"]
        return {}

    def ddb_Scan(self, table, _):
        return {"Items": [item for item, _ in table["items"].values()]}

    def ddb_PutItem(self, table, asked):
        self.put_item(table["TableName"], asked["Item"])
        return {}

    def put_item(self, table, item, at=0):
        self.tables[table]["items"][json.dumps(item["identity"])] = (item, at)

    def ddb_DeleteItem(self, table, asked):
        table["items"].pop(json.dumps(asked["Key"]["identity"]), None)
        return {}

    # ---- Lambda, S3, SQS -------------------------------------------------------------

    def on_lambda(self, operation, body):
        method, path = operation.split(" ", 1)
        name = unquote(path.split("/")[3])
        if path.endswith("/invocations"):
            logical = next(key for key, value in self.physical.items() if value == name.split(":")[0])
            event = json.loads(body)
            self.invocations.append(event)
            if self.stopped.get(name.split(":")[0]) == 0:
                raise Refused("TooManyRequestsException", "Rate Exceeded")
            assert logical == "ReconcileFunction"
            if event["job"] == "forget":
                self.events.append("forgot" if "from" in event else "forgets")
                return json.dumps({"job": "forget", "next": None if "from" in event else "keys 7"})
            return json.dumps({"job": event["job"]})
        if method == "GET":
            return json.dumps({"ReservedConcurrentExecutions": self.stopped[name]} if name in self.stopped else {})
        if method == "PUT":
            self.stopped[name] = json.loads(body)["ReservedConcurrentExecutions"]
            return json.dumps({"ReservedConcurrentExecutions": self.stopped[name]})
        self.stopped.pop(name, None)
        return ""

    def on_s3(self, operation, body):
        method, path = operation.split(" ", 1)
        key = unquote(urlsplit(path).path).removeprefix(f"/{BUCKET}/")
        if method == "PUT":
            self.objects[key] = body
            return ""
        if key not in self.objects:
            raise Refused("NoSuchKey", key)
        return self.objects[key]

    def on_sqs(self, operation, asked):
        assert operation == "PurgeQueue"
        self.purged.append(asked["QueueUrl"].rsplit("/", 1)[1])
        return json.dumps({})


def change_tables(template):
    return {name: one for name, one in template["Resources"].items() if one["Type"] == TABLE}
