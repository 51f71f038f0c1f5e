"""Deletes old versions of the functions: `make prune ENV=prod KEEP=5`.

    prune.py [--environment dev] [--region eu-central-1] [--keep 5] [--dry-run]

A deployment publishes a version of each function that has changed, and Lambda keeps all of them (75 GB of code in an account and region). The
newest versions stay, for a rollback, and so does each version that an alias names. Exit status: 0, or 1 with a sentence.
"""

import argparse
import sys
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "preflight"))

import account as aws  # noqa: E402
from template import Mistake, environment  # noqa: E402


def functions(account, stack):
    """Logical and physical ids of the stack's functions."""
    pages = account.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=stack)
    resources = [one for page in pages for one in page["StackResourceSummaries"] if one["ResourceType"] == "AWS::Lambda::Function"]
    return {one["LogicalResourceId"]: one["PhysicalResourceId"] for one in resources if one.get("PhysicalResourceId")}


def listed(account, operation, field, function):
    return [one for page in account.client("lambda").get_paginator(operation).paginate(FunctionName=function) for one in page[field]]


def old_versions(account, function, keep):
    """The versions, oldest first, that no alias names and that are not among the newest."""
    used = set()
    for alias in listed(account, "list_aliases", "Aliases", function):
        used |= {alias["FunctionVersion"], *alias.get("RoutingConfig", {}).get("AdditionalVersionWeights", {})}
    numbers = sorted(int(one["Version"]) for one in listed(account, "list_versions_by_function", "Versions", function) if one["Version"] != "$LATEST")
    return [number for number in numbers[: max(len(numbers) - keep, 0)] if str(number) not in used]


def prune(options):
    name, region, _ = environment(options.samconfig, options.environment)
    account = aws.Account(options.region or region)
    account.check_credentials()
    if not account.stack(name):
        raise Mistake(f"There is no stack {name} in {account.region}.")
    for logical, function in functions(account, name).items():
        for version in old_versions(account, function, options.keep):
            print(f"{'would delete' if options.dry_run else 'deletes'} version {version} of {logical}", flush=True)
            if not options.dry_run:
                account.call("lambda", "delete_function", FunctionName=function, Qualifier=str(version))


def least_one(text):
    if int(text) < 1:
        raise ValueError("less than one")
    return int(text)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="prune", description="Deletes old versions of the functions.")
    parser.add_argument("--environment", default="dev", help="the environment of samconfig.toml (dev)")
    parser.add_argument("--region", help="the region; otherwise that of samconfig.toml or of the shell")
    parser.add_argument("--keep", type=least_one, default=5, help="the number of newest versions that stay (5)")
    parser.add_argument("--dry-run", action="store_true", help="print the versions and delete none")
    parser.add_argument("--samconfig", default="samconfig.toml", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    try:
        prune(options)
    except (Mistake, BotoCoreError, ClientError) as error:
        print(f"mistake: {aws.told(error)}.")
        sys.exit(1)


if __name__ == "__main__":
    main()
