"""Lays built functions out as `sam build` does, for this machine: `bundle.py binaries architecture target`.

Runs in SAM's virtual environment, whose YAML reader knows CloudFormation's tags. `target` must not be .aws-sam/build, because `sam deploy`
uses that folder by default.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

TEMPLATE = Path(__file__).resolve().parents[2] / "template.yaml"

# The services of a local stack. `--env-vars` gives values only to variables that the template declares.
ENDPOINTS = ["AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL_SQS", "AWS_ENDPOINT_URL_EVENTBRIDGE"]


def run(venv, binaries, architecture, target):
    """Runs this script in SAM's virtual environment."""
    subprocess.run([venv / "bin/python", __file__, binaries, architecture, target], check=True, env=os.environ | {"SAM_CLI_TELEMETRY": "0"})


def lay_out(binaries, architecture, target):
    """Writes `target`/template.yaml, `target`/<function>/bootstrap, and functions.json: binary and routes by logical id."""
    from samcli.yamlhelper import yaml_dump, yaml_parse

    document = yaml_parse(TEMPLATE.read_text(encoding="utf-8"))
    shutil.rmtree(target, ignore_errors=True)
    functions, known = {name: body for name, body in document["Resources"].items() if body["Type"] == "AWS::Serverless::Function"}, {}
    for name, body in functions.items():
        folder = target / name
        folder.mkdir(parents=True)
        binary = body["Metadata"]["BuildProperties"]["Binary"]
        shutil.copy2(binaries / binary, folder / "bootstrap")
        known[name] = {"binary": binary, "routes": routes(body)}
        # The functions are built already, so SAM must not build them.
        del body["Metadata"]
        body["Properties"] |= {"CodeUri": name, "Architectures": [architecture]}
        variables = body["Properties"].setdefault("Environment", {}).setdefault("Variables", {})
        variables.update(dict.fromkeys(ENDPOINTS, ""))
    (target / "template.yaml").write_text(yaml_dump(document), encoding="utf-8")
    (target / "functions.json").write_text(json.dumps(known), encoding="utf-8")


def routes(function):
    """Method and path of each HTTP event."""
    events = function["Properties"].get("Events", {}).values()
    return [(event["Properties"]["Method"], event["Properties"]["Path"]) for event in events if event["Type"] == "HttpApi"]


if __name__ == "__main__":
    binaries, architecture, target = sys.argv[1:]
    lay_out(Path(binaries), architecture, Path(target))
