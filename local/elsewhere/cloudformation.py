"""Creates the expanded template with ministack's CloudFormation, and prints what it creates, omits and refuses.

A resource that is refused is taken out, references to it become plain text, and the rest is tried again, until a stack is complete. So
one refusal does not hide another.
"""

import io
import json
import re
import sys
import time
import urllib.request
import zipfile
from collections import Counter
from pathlib import Path

import botocore.config
import botocore.session

sys.path.append(str(Path(__file__).resolve().parents[1] / "sam"))

from expand import expand  # noqa: E402

STACK, BUCKET = "tidemark", "bucket"
COMPLETE_WITHIN = 120


def without(value, gone):
    """The value with every reference to something in `gone` replaced by text: a resource, or an attribute of one."""

    def is_gone(target):
        return not gone.isdisjoint({target.partition(".")[0], target})

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
    rest = {name: without(item, gone) for name, item in value.items()}
    if "DependsOn" in rest:
        needed = value["DependsOn"]
        rest["DependsOn"] = [name for name in ([needed] if isinstance(needed, str) else needed) if name not in gone]
    return rest


def client(url, service):
    config = botocore.config.Config(retries={"max_attempts": 0}, read_timeout=COMPLETE_WITHIN, s3={"addressing_style": "path"})
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    return botocore.session.get_session().create_client(service, region_name="us-east-1", endpoint_url=url, config=config, **keys)


def create(url, template, gone):
    """Creates a stack without what is in `gone`, in an empty emulator. Returns the reason of its refusal, or None."""
    urllib.request.urlopen(urllib.request.Request(f"{url}/_ministack/reset", method="POST"), timeout=COMPLETE_WITHIN).close()
    body = {name: without(part, gone) for name, part in template.items() if name != "Outputs"}
    body["Resources"] = {name: part for name, part in body["Resources"].items() if name not in gone}
    code = io.BytesIO()
    zipfile.ZipFile(code, "w").close()
    formation, s3 = client(url, "cloudformation"), client(url, "s3")
    s3.create_bucket(Bucket=BUCKET)
    s3.put_object(Bucket=BUCKET, Key="code.zip", Body=code.getvalue())
    # The request itself cannot carry a template of this size.
    s3.put_object(Bucket=BUCKET, Key="template.json", Body=json.dumps(body).encode())
    capabilities = ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"]
    where = f"{url}/{BUCKET}/template.json"
    try:
        formation.create_stack(StackName=STACK, TemplateURL=where, Capabilities=capabilities, OnFailure="DO_NOTHING")
    except formation.exceptions.ClientError as error:
        return str(error)
    deadline = time.monotonic() + COMPLETE_WITHIN
    while (stack := formation.describe_stacks(StackName=STACK)["Stacks"][0])["StackStatus"] == "CREATE_IN_PROGRESS":
        if time.monotonic() > deadline:
            raise SystemExit(f"the stack is not complete after {COMPLETE_WITHIN} s")
        time.sleep(0.1)
    return None if stack["StackStatus"] == "CREATE_COMPLETE" else stack.get("StackStatusReason", stack["StackStatus"])


def refused_for(reason, resources, gone):
    """The resources, or attributes of resources, that a refusal is about."""
    left = {name: kind for name, kind in resources.items() if name not in gone}
    if found := re.search(r"resource types: \[([^\]]*)\]", reason):
        return {name: "unknown resource type" for name, kind in left.items() if kind in found[1].split(", ")}
    if found := re.search(r"attribute (\S+) does not exist in schema for (\S+)", reason):
        return {f"{name}.{found[1]}": "unknown attribute" for name, kind in left.items() if kind == found[2]}
    if (found := re.search(r"[Rr]esource (\w+)", reason)) and found[1] in left:
        return {found[1]: " ".join(reason.split("failed: ")[-1].split())}
    return {}


def report(name, url, template):
    template = expand(template)
    resources = {name: part["Type"] for name, part in template["Resources"].items()}
    refused = {}
    while reason := create(url, template, set(refused)):
        found = refused_for(reason, resources, refused)
        if not found:
            raise SystemExit(f"the stack is refused: {reason}")
        refused |= found
    pages = client(url, "cloudformation").get_paginator("list_stack_resources").paginate(StackName=STACK)
    made = {part["LogicalResourceId"] for page in pages for part in page["StackResourceSummaries"]}
    kinds = Counter(kind for name, kind in resources.items() if name in made)
    omitted = Counter(kind for name, kind in resources.items() if name not in made and name not in refused)
    reasons = Counter((resources[name.split(".")[0]], reason) for name, reason in refused.items())
    print(f"== {name}: CloudFormation created {kinds.total()} of {len(resources)} resources, omitted {omitted.total()}")
    for verb, counts in (("created", kinds), ("omitted", omitted)):
        for kind, count in sorted(counts.items()):
            print(f"{verb}: {count} {kind}")
    for (kind, reason), count in sorted(reasons.items()):
        print(f"refused: {count} {kind}: {reason[:240]}")
