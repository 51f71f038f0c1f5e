"""Expands the SAM template into the plain CloudFormation that AWS would deploy, without an account: `expand.py template.yaml expanded.json`.

`sam validate` checks the template as it is written. The expanded template shows the roles, versions, aliases, deployment groups and event
sources that SAM adds.
"""

import json
import logging
import os
import sys

os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")

from samtranslator.parser.parser import Parser  # noqa: E402
from samtranslator.translator.translator import Translator  # noqa: E402
from samtranslator.yaml_helper import yaml_parse  # noqa: E402

# SAM needs the ARNs of the managed policies that it attaches. This template needs only the policy of CodeDeploy, because
# every function has a role of its own.
POLICIES = {"AWSCodeDeployRoleForLambda": "arn:aws:iam::aws:policy/service-role/AWSCodeDeployRoleForLambda"}


def expand(path):
    with open(path, encoding="utf-8") as file:
        template = yaml_parse(file.read())
    # The translator does not package the code. This is a placeholder for the location that `sam package` sets.
    template["Globals"]["Function"]["CodeUri"] = {"Bucket": "bucket", "Key": "code.zip"}
    parameters = {name: body["Default"] for name, body in template["Parameters"].items()}
    return Translator(POLICIES, Parser()).translate(template, parameter_values=parameters)


if __name__ == "__main__":
    # Hides a remark on a feature that only AWS itself can turn on.
    logging.getLogger("samtranslator").setLevel(logging.ERROR)
    source, target = sys.argv[1:]
    expanded = expand(source)
    with open(target, "w", encoding="utf-8") as file:
        json.dump(expanded, file, indent=1)
    print(f"{len(expanded['Resources'])} resources")
