"""Runs a command with the tables of a deployed stack: `stack.py NAME [--region R] -- transfer export all.ndjson`.

It reads names and parameters from CloudFormation, and adds `--deployed JSON` to the command. Exit status: that of the command; 2 with a
sentence if the stack cannot be read.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "preflight"))

import account as aws  # noqa: E402
from template import Mistake  # noqa: E402


def deployed(account, name):
    """What the command needs to know of a stack."""
    account.check_credentials()
    stack = account.stack(name)
    if stack is None:
        raise Mistake(f"There is no stack {name} in {account.region}.")
    pages = account.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=name)
    resources = [one for page in pages for one in page["StackResourceSummaries"] if one.get("PhysicalResourceId")]
    tables = {one["LogicalResourceId"]: one["PhysicalResourceId"] for one in resources if one["ResourceType"] == "AWS::DynamoDB::Table"}
    if not tables:
        raise Mistake(f"Stack {name} has no tables.")
    parameters = {one["ParameterKey"]: one.get("ParameterValue", "") for one in stack["Parameters"]}
    limits = {"following_limit": int(parameters["FollowingLimit"]), "pull_threshold": int(parameters["PullThreshold"])}
    return {"region": account.region, "tables": tables, **limits}


# Credentials that the command finds by itself, and renews.
FOUND = {"env", "shared-credentials-file", "config-file", "assume-role-with-web-identity", "container-role", "iam-role"}


def environment(credentials, inherited):
    """The environment of the command. It gets credentials that it cannot find by itself, such as those of AWS SSO."""
    if credentials.method in FOUND:
        return inherited
    frozen = credentials.get_frozen_credentials()
    of_command = {name: value for name, value in inherited.items() if name != "AWS_SESSION_TOKEN"}
    of_command |= {"AWS_ACCESS_KEY_ID": frozen.access_key, "AWS_SECRET_ACCESS_KEY": frozen.secret_key}
    return of_command | ({"AWS_SESSION_TOKEN": frozen.token} if frozen.token else {})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stack")
    parser.add_argument("--region")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    try:
        account = aws.Account(options.region)
        found = deployed(account, options.stack)
        variables = environment(account.session.get_credentials(), dict(os.environ))
    except Mistake as mistake:
        print(f"transfer: {mistake}", file=sys.stderr)
        return 2
    except (BotoCoreError, ClientError) as error:
        print(f"transfer: {aws.told(error)}", file=sys.stderr)
        return 2
    os.execvpe(options.command[0], [*options.command, "--deployed", json.dumps(found)], variables)


if __name__ == "__main__":
    sys.exit(main())
