"""Runs `prune.py` against a fake of AWS on loopback."""

import contextlib
import io
import json
import os
import sys
import unittest
from pathlib import Path
from unittest import mock
from urllib.parse import parse_qs, urlsplit

ROOT = Path(__file__).resolve().parents[2]
for folder in ("local/release", "local/preflight"):
    sys.path.insert(0, str(ROOT / folder))

import prune  # noqa: E402
from fake_aws import Answers, FakeAws, members, xml  # noqa: E402


class Functions(Answers):
    """Two functions with their versions and aliases."""

    def __init__(self):
        super().__init__()
        self.stack = ("UPDATE_COMPLETE", {})
        self.versions = {"publish": list(range(1, 13)), "follow": [1, 2]}
        self.aliases = {"publish": [{"Name": "live", "FunctionVersion": "4", "RoutingConfig": {"AdditionalVersionWeights": {"6": 0.1}}}], "follow": []}

    def on_cloudformation(self, operation, arguments):
        if operation != "ListStackResources":
            return super().on_cloudformation(operation, arguments)
        kinds = {"publish": "AWS::Lambda::Function", "follow": "AWS::Lambda::Function", "queue": "AWS::SQS::Queue"}
        rest = "<ResourceStatus>CREATE_COMPLETE</ResourceStatus><LastUpdatedTimestamp>2026-01-01T00:00:00Z</LastUpdatedTimestamp>"
        ids = lambda name: f"<LogicalResourceId>{name.title()}Function</LogicalResourceId><PhysicalResourceId>{name}</PhysicalResourceId>"
        return 200, xml(operation, members("StackResourceSummaries", [f"<member>{ids(name)}<ResourceType>{kind}</ResourceType>{rest}</member>" for name, kind in kinds.items()]))

    def on_lambda(self, operation, _):
        method, url = operation.split(" ", 1)
        parts = urlsplit(url)
        name = parts.path.split("/")[3]
        if method == "DELETE":
            number = parse_qs(parts.query)["Qualifier"][0]
            assert all(number != alias["FunctionVersion"] for alias in self.aliases[name])
            self.versions[name].remove(int(number))
            return 200, "{}"
        if parts.path.endswith("/aliases"):
            return 200, json.dumps({"Aliases": self.aliases[name]})
        return 200, json.dumps({"Versions": [{"Version": "$LATEST"}, *({"Version": str(number)} for number in self.versions[name])]})


class Prune(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.aws = FakeAws()

    @classmethod
    def tearDownClass(cls):
        cls.aws.close()

    def setUp(self):
        self.functions = self.aws.answers = Functions()

    def run_it(self, *options):
        base = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        base |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_ENDPOINT_URL": self.aws.url, "AWS_DEFAULT_REGION": "eu-central-1"}
        base |= {"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
        printed, code = io.StringIO(), 0
        with mock.patch.dict(os.environ, base, clear=True), contextlib.redirect_stdout(printed):
            try:
                prune.main(["--environment", "prod", "--samconfig", str(ROOT / "samconfig.toml"), *options])
            except SystemExit as exited:
                code = exited.code
        return code, printed.getvalue()

    def test_the_newest_versions_and_those_of_an_alias_stay(self):
        code, output = self.run_it("--keep", "3")
        self.assertEqual(code, 0, output)
        self.assertEqual(self.functions.versions, {"publish": [4, 6, 10, 11, 12], "follow": [1, 2]})
        self.assertEqual(self.run_it("--keep", "3"), (0, ""), "a second run deletes nothing")

    def test_a_dry_run_deletes_nothing(self):
        code, output = self.run_it("--dry-run")
        self.assertEqual((code, len(self.functions.versions["publish"])), (0, 12))
        self.assertEqual(output.splitlines(), [f"would delete version {number} of PublishFunction" for number in (1, 2, 3, 5, 7)])

    def test_mistakes_are_sentences(self):
        self.functions.stack = None
        self.assertEqual(self.run_it(), (1, "mistake: There is no stack tidemark in eu-central-1.\n"))
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertEqual(self.run_it("--keep", "0")[0], 2)


if __name__ == "__main__":
    unittest.main()
