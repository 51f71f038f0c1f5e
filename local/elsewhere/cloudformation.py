"""Creates the expanded template with an emulator's CloudFormation, and prints what it creates, omits and refuses.

A resource that is refused is taken out, references to it become plain text, and the rest is tried again, until a stack is complete. So
one refusal does not hide another.
"""

import io
import json
import re
import time
import urllib.request
import zipfile
from collections import Counter

import botocore.config
import botocore.exceptions
import botocore.session

STACK, BUCKET = "tidemark", "templates"
# How an emulator is emptied, because a stack that was refused halfway leaves resources behind, and where the template is. CloudFormation
# reads one of this size from S3 only, which moto cannot; moto accepts it in the request.
EMULATORS = {"ministack": ("/_ministack/reset", True), "moto": ("/moto-api/reset", False)}
COMPLETE_WITHIN = 120
# What the services themselves list after the creation, to compare with what CloudFormation claims.
LISTED = {
    "AWS::DynamoDB::Table": ("dynamodb", "list_tables", "TableNames"),
    "AWS::SQS::Queue": ("sqs", "list_queues", "QueueUrls"),
    "AWS::Lambda::Function": ("lambda", "list_functions", "Functions"),
    "AWS::Lambda::EventSourceMapping": ("lambda", "list_event_source_mappings", "EventSourceMappings"),
    "AWS::IAM::Role": ("iam", "list_roles", "Roles"),
    "AWS::CloudWatch::Alarm": ("cloudwatch", "describe_alarms", "MetricAlarms"),
    "AWS::Events::Rule": ("events", "list_rules", "Rules"),
    "AWS::ApiGatewayV2::Api": ("apigatewayv2", "get_apis", "Items"),
}


def without(value, gone):
    """The value with every reference to something in `gone` replaced by text: a resource, an attribute of one, or all of them (`Name.*`)."""

    def is_gone(target):
        name, _, attribute = target.partition(".")
        return not gone.isdisjoint({name, target, f"{name}.*" if attribute else name})

    if isinstance(value, list):
        return [without(item, gone) for item in value]
    if isinstance(value, str):
        return re.sub(r"\$\{([\w.]+)\}", lambda found: "refused" if is_gone(found[1]) else found[0], value)
    if not isinstance(value, dict):
        return value
    target = value.get("Ref") or value.get("Fn::GetAtt")
    target = ".".join(target) if isinstance(target, list) else target
    if len(value) == 1 and isinstance(target, str) and is_gone(target):
        return f"arn:aws:refused:us-east-1:000000000000:{target}"
    rest = {name: without(item, gone) for name, item in value.items() if name != "DependsOn"}
    if "DependsOn" in value:
        needed = [value["DependsOn"]] if isinstance(value["DependsOn"], str) else value["DependsOn"]
        rest["DependsOn"] = [name for name in needed if name not in gone]
    return rest


def references(value):
    """The resources that a value refers to."""
    if isinstance(value, list):
        return set().union(*map(references, value))
    if isinstance(value, str):
        return {found.split(".")[0] for found in re.findall(r"\$\{([\w.]+)\}", value)}
    if not isinstance(value, dict):
        return set()
    target, needed = value.get("Ref") or value.get("Fn::GetAtt") or [], value.get("DependsOn", [])
    direct = [target.split(".")[0] if isinstance(target, str) else target[0]] if target else []
    return {*direct, *([needed] if isinstance(needed, str) else needed)} | references(list(value.values()))


def in_order(resources, names):
    """These resources, each after those that it refers to."""
    order = []

    def add(name):
        if name in names and name not in order:
            for other in references(resources[name]) - {name}:
                add(other)
            order.append(name)

    for name in names:
        add(name)
    return order


class CloudFormation:
    def __init__(self, url, reset, from_s3):
        self.url, self.reset, self.from_s3, self.tries = url, url + reset, from_s3, 0
        self.formation, self.s3 = self.client("cloudformation"), self.client("s3")

    def client(self, service):
        config = botocore.config.Config(retries={"max_attempts": 0}, read_timeout=COMPLETE_WITHIN, s3={"addressing_style": "path"})
        session = botocore.session.get_session()
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        return session.create_client(service, region_name="us-east-1", endpoint_url=self.url, config=config, **keys)

    def create(self, template, gone):
        """Creates a stack without the resources in `gone`. Returns its refusal, or None."""
        body = {name: without(part, gone) for name, part in template.items() if name != "Outputs"}
        body["Resources"] = {name: part for name, part in body["Resources"].items() if name not in gone}
        text = json.dumps(body)
        urllib.request.urlopen(urllib.request.Request(self.reset, method="POST"), timeout=COMPLETE_WITHIN).close()
        for bucket in (BUCKET, "bucket"):
            self.s3.create_bucket(Bucket=bucket)
        with io.BytesIO() as file:
            zipfile.ZipFile(file, "w").close()
            self.s3.put_object(Bucket="bucket", Key="code.zip", Body=file.getvalue())
        where = {"TemplateBody": text}
        if self.from_s3:
            self.s3.put_object(Bucket=BUCKET, Key="template.json", Body=text.encode())
            where = {"TemplateURL": f"{self.url}/{BUCKET}/template.json"}
        self.tries += 1
        try:
            self.formation.create_stack(
                StackName=STACK,
                **where,
                Capabilities=["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"],
                OnFailure="DO_NOTHING",
            )
        except (botocore.exceptions.ClientError, botocore.parsers.ResponseParserError) as error:
            return str(error)
        stack = self.wait()
        return None if stack["StackStatus"] == "CREATE_COMPLETE" else stack.get("StackStatusReason", stack["StackStatus"])

    def wait(self):
        deadline = time.monotonic() + COMPLETE_WITHIN
        while time.monotonic() < deadline:
            stack = self.formation.describe_stacks(StackName=STACK)["Stacks"][0]
            if stack["StackStatus"] != "CREATE_IN_PROGRESS":
                return stack
            time.sleep(0.1)
        raise SystemExit(f"the stack is not complete after {COMPLETE_WITHIN} s")

    def culprits(self, template, gone, reason):
        """The resources that a refusal is about. If it does not name one, finds the first that fails, and takes all of its type."""
        left = {name: part["Type"] for name, part in template["Resources"].items() if name not in gone}
        if types := re.search(r"resource types: \[([^\]]*)\]", reason):
            return {name: "unknown resource type" for name, kind in left.items() if kind in types[1].split(", ")}
        if found := re.search(r"attribute (\S+) does not exist in schema for (\S+)", reason):
            return {f"{name}.{found[1]}": "unknown attribute" for name, kind in left.items() if kind == found[2]}
        if (found := re.search(r"references undefined resource (\w+)", reason)) and found[1] in left:
            return {f"{found[1]}.*": "no attributes"}
        if (named := re.search(r"[Rr]esource (\w+)", reason)) and named[1] in left:
            return {named[1]: reason.split("failed: ")[-1]}
        order = in_order(template["Resources"], left)
        right, wrong = 0, len(order)
        while wrong - right > 1:
            middle = (right + wrong) // 2
            if failure := self.create(template, set(template["Resources"]) - set(order[:middle])):
                wrong, reason = middle, failure
            else:
                right = middle
        return {name: reason for name, kind in left.items() if kind == left[order[right]]}

    def listed(self, kind, names):
        """How many of these physical names or ids the service itself lists."""
        service, operation, key = LISTED[kind]
        listed = json.dumps(getattr(self.client(service), operation)().get(key, []), default=str)
        return sum(name.split("/")[-1] in listed for name in names)


def report(emulator, url, template):
    there = CloudFormation(url, *EMULATORS[emulator])
    refused = {}
    while reason := there.create(template, set(refused)):
        refused |= there.culprits(template, set(refused), reason)
    resources = {name: part["Type"] for name, part in template["Resources"].items()}
    pages = there.formation.get_paginator("list_stack_resources").paginate(StackName=STACK)
    made = {part["LogicalResourceId"]: part.get("PhysicalResourceId", "") for page in pages for part in page["StackResourceSummaries"]}
    made = {name: made[name] for name in resources if name in made}
    omitted = Counter(kind for name, kind in resources.items() if name not in made and name not in refused)
    print(f"{len(made)} of {len(resources)} resources created, {omitted.total()} omitted, {len(refused)} refused ({there.tries} stacks tried)")
    for kind, count in sorted(Counter(resources[name] for name in made).items()):
        listed = f", {there.listed(kind, [made[name] for name in made if resources[name] == kind])} listed" if kind in LISTED else ""
        print(f"created: {count} {kind}{listed}")
    for kind, count in sorted(omitted.items()):
        print(f"omitted: {count} {kind}")
    kind_of = lambda name: resources[name.split(".")[0]]  # noqa: E731
    for name, reason in sorted(refused.items(), key=lambda pair: (kind_of(pair[0]), pair[0])):
        print(f"refused: {kind_of(name)} {name}: {' '.join(reason.split())[:240]}")
