"""Runs `restore.py` against a fake of an account on loopback, and cuts it off at each change. `make restore-check` runs this."""

import contextlib
import functools
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
for folder in ("local/restore", "local/preflight", "local/sam"):
    sys.path.insert(0, str(ROOT / folder))

import change  # noqa: E402
import restore  # noqa: E402
from expand import expand  # noqa: E402
from fake_account import Account, change_tables  # noqa: E402
from fake_aws import FakeAws  # noqa: E402

TO, STAMP = "2026-11-26T18:00:00Z", "20261126T180000"
SECOND = 1795716000  # of TO
TWO = "ReadsTable,FollowingTable"


def receipt(identity, **more):
    return {"identity": {"S": identity}, **more}


class Restore(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.aws = FakeAws()
        # Clients of AWS take a second to make. One of each serves all runs.
        one = mock.patch.object(restore.aws, "Account", functools.cache(restore.aws.Account))
        one.start()
        cls.addClassCleanup(one.stop)
        cls.original = (ROOT / "template.yaml").read_text(encoding="utf-8")
        cls.expanded = json.loads(json.dumps(expand(str(ROOT / "template.yaml"))))
        declared = cls.expanded["Parameters"]
        cls.parameters = {name: str(one["Default"]) for name, one in declared.items()} | {"JwtIssuer": "https://issuer.tidemark.test/"}

    @classmethod
    def tearDownClass(cls):
        cls.aws.close()

    def setUp(self):
        self.account = self.aws.answers = Account(self.expanded, self.original, self.parameters)
        self.slept = []

    def run_it(self, *options, to=TO):
        """Exit code and output."""
        base = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        base |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_ENDPOINT_URL": self.aws.url, "AWS_DEFAULT_REGION": "eu-central-1"}
        base |= {"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
        base |= {"AWS_REQUEST_CHECKSUM_CALCULATION": "when_required", "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required"}
        printed, code = io.StringIO(), 0
        arguments = ["--to", to, "--environment", "prod", "--samconfig", str(ROOT / "samconfig.toml"), *options]
        with mock.patch.dict(os.environ, base, clear=True), contextlib.redirect_stdout(printed):
            try:
                restore.main(arguments, self.slept.append)
            except SystemExit as exited:
                code = exited.code
        return code, printed.getvalue()

    def refused(self, sentence, *options, to=TO):
        code, output = self.run_it(*options, to=to)
        self.assertEqual(code, 1, output)
        self.assertRegex(output.splitlines()[-1], f"^mistake: .*{sentence}")

    def assert_restored(self, tables):
        """The stack serves from these tables, restored with all settings, and everything is as before otherwise."""
        account = self.account
        for name in change_tables(self.expanded):
            wanted = f"tidemark-{name}-{STAMP}" if name in tables else f"tidemark-{name}-OLD"
            self.assertEqual(account.physical[name], wanted)
            self.assertIn(f"tidemark-{name}-OLD", account.tables, "the old table stays")
            self.assertNotIn(f"tidemark-{name}-NEW", account.tables, "no table was made anew")
            table, old = account.tables[wanted], account.tables[f"tidemark-{name}-OLD"]
            self.assertEqual((table.get("StreamSpecification"), table["expiry"], table["recovers"]), (old.get("StreamSpecification"), old["expiry"], True), name)
            self.assertIn({"Key": "team", "Value": "feeds"}, table["tags"])
            if name in tables:
                self.assertEqual(table["restored"], SECOND)
        served = account.serves_from()
        self.assertEqual(len(served), 13)
        for name, variables in served.items():
            self.assertEqual(len(variables), 14, name)
            self.assertEqual(set(variables.values()), {account.physical[table] for table in change_tables(self.expanded)}, name)
        self.assertEqual((account.stopped, account.status), ({}, account.status))
        self.assertTrue(account.status.endswith("_COMPLETE"))
        self.assertEqual(account.original, self.original, "the next deployment meets the template that it knows")
        self.assertEqual(account.parameters, self.parameters | {"Release": STAMP})
        self.assertEqual(account.invocations[-1], {"job": "users", "share": 1, "from": "keys 0"})

    def test_all_tables_are_restored_to_one_second_and_the_stack_serves_from_them(self):
        code, output = self.run_it()
        self.assertEqual(code, 0, output)
        self.assert_restored(set(change_tables(self.expanded)))
        events = self.account.events
        steps = [one for one in events if one.startswith(("executed", "sqs", "forg"))]
        queues = sum(one["Type"] == "AWS::SQS::Queue" for one in self.expanded["Resources"].values())
        self.assertEqual(steps, ["executed UPDATE", *["sqs PurgeQueue"] * queues, "forgets", "forgot", "executed IMPORT", "executed UPDATE"])
        first, imported, last = self.account.changed
        self.assertEqual((imported, last), (set(), set()), "as the next deployment, which keeps the restored tables")
        kinds = {self.expanded["Resources"][name]["Type"].rsplit("::", 1)[1] for name in first}
        self.assertEqual(kinds, {"Function", "Version", "Role", "EventSourceMapping", "VPCEndpoint", "Alarm", "Dashboard"})
        stopped = [index for index, one in enumerate(events) if one.startswith("lambda PUT")]
        started = [index for index, one in enumerate(events) if one.startswith("lambda DELETE")]
        self.assertEqual((len(stopped), len(started)), (13, 13))
        self.assertLess(max(stopped), events.index("executed UPDATE"), "no function runs during the switch")
        self.assertGreater(min(started), events.index("executed UPDATE"))
        self.assertEqual(max(self.slept), 60, "the purge of a queue")
        self.assertNotIn("note:", output, "no drift")

    def test_one_table_is_restored_beside_newer_others(self):
        self.assertEqual(self.run_it("--tables", "ReadsTable")[0], 0)
        self.assert_restored({"ReadsTable"})

    def test_a_second_run_after_the_end_changes_no_table_and_no_function(self):
        self.run_it("--tables", TWO)
        tables, events = json.dumps(self.account.tables, default=str), len(self.account.events)
        code, output = self.run_it("--tables", TWO)
        self.assertEqual(code, 0, output)
        self.assertEqual(json.dumps(self.account.tables, default=str), tables)
        self.assertEqual([one for one in self.account.events[events:] if not one.startswith("cloudformation")], ["lambda POST /2015-03-31/functions/tidemark-ReconcileFunction-OLD%3Alive/invocations"])
        self.assert_restored(set(TWO.split(",")))

    def test_a_run_that_was_cut_off_is_continued_by_the_next(self):
        """It is cut off before the first and after the last of each group of equal changes, which includes a lost response."""
        self.run_it("--tables", TWO)
        asked, cuts = self.account.asked, []
        for number, (before, here, after) in enumerate(zip([None, *asked], asked, [*asked[1:], None]), 1):
            cuts += [(number, False)] * (before != here) + [(number, True)] * (here != after)
        self.assertGreater(len(cuts), 40)
        for number, late in cuts:
            self.setUp()
            self.account.fails_after, self.account.fails_late = number, late
            code, output = self.run_it("--tables", TWO)
            with self.subTest(number=number, late=late, change=asked[number - 1]):
                # A run goes on after an answer that says that all is as it should be.
                self.assertTrue(code == 0 or "Run the same command again" in output.splitlines()[-1], output)
                self.account.fails_after = None
                code, output = self.run_it("--tables", TWO) if code else (code, output)
                self.assertEqual(code, 0, output)
                self.assert_restored(set(TWO.split(",")))

    def test_a_dry_run_shows_each_change_and_makes_none(self):
        before = json.dumps([self.account.tables, self.account.physical, self.account.parameters], default=str)
        code, output = self.run_it("--dry-run")
        self.assertEqual(code, 0, output)
        self.assertEqual((self.account.writes, self.account.objects), (0, {}))
        self.assertEqual(json.dumps([self.account.tables, self.account.physical, self.account.parameters], default=str), before)
        shown = [line.split("(")[0].strip() for line in output.splitlines() if "would call" in line]
        self.run_it()
        made = [event for event in self.account.events if not event.startswith(("executed", "forg"))]
        self.assertGreater(len(shown), 90)
        for operation in ("dynamodb.restore_table_to_point_in_time", "lambda.put_function_concurrency", "cloudformation.execute_change_set", "sqs.purge_queue", "lambda.invoke"):
            self.assertIn(f"would call {operation}", shown)
        self.assertLess(abs(len(shown) - len(made)), 30, "about as many as a run makes")

    def test_users_who_have_left_since_then_stay_erased(self):
        account, (old, new) = self.account, (f"tidemark-IdentitiesTable-{which}" for which in ("OLD", STAMP))
        for item, at in (
            (receipt("sub-7", user={"N": "7"}), SECOND - 9),
            (receipt("sub-8", user={"N": "8"}), SECOND + 9),
            (receipt("erased#5", finished_at={"N": "1"}), SECOND - 9),
            (receipt("erased#6", finished_at={"N": "2"}), SECOND + 9),
            (receipt("left#6#3"), SECOND + 9),
            (receipt("erasures#1", running={"NS": ["9"]}), SECOND + 9),
        ):
            account.put_item(old, item, at)
        self.assertEqual(self.run_it()[0], 0)
        there = sorted(item["identity"]["S"] for item, _ in account.tables[new]["items"].values())
        self.assertEqual(there, ["erased#5", "erased#6", "erasures#1", "left#6#3", "sub-7"])

    def test_what_cannot_be_restored_is_refused_before_any_change(self):
        self.refused("can be restored to times from", to="2026-11-26T19:00:00Z")
        self.refused("can be restored to times from", to="2026-10-01T00:00:00Z")
        self.refused("no table ReadTable; it has", "--tables", "ReadTable")
        self.refused("PostsTable cannot be restored without all other tables", "--tables", "PostsTable,ReadsTable")
        self.account.tables["tidemark-PostsTable-OLD"]["recovers"] = False
        self.refused("PostsTable .* has no point-in-time recovery")
        self.account.status = "UPDATE_ROLLBACK_FAILED"
        self.refused("is in UPDATE_ROLLBACK_FAILED")
        self.account.credentials = False
        self.assertEqual(self.account.writes, 0)
        for wrong in ("2026-11-26 18:00", "yesterday", "2026-11-26T18:00:00.5Z"):
            with contextlib.redirect_stderr(io.StringIO()):
                self.assertEqual(self.run_it(to=wrong)[0], 2)

    def test_a_switch_that_fails_leaves_the_functions_running_on_the_old_tables(self):
        execute = self.account.cfn_ExecuteChangeSet

        def rolled_back(asked):
            self.account.change_sets.pop(asked["ChangeSetName"])
            self.account.begin("UPDATE_ROLLBACK_IN_PROGRESS", "UPDATE_ROLLBACK_COMPLETE")
            return ""

        self.account.cfn_ExecuteChangeSet = rolled_back
        self.refused("ended as UPDATE_ROLLBACK_COMPLETE")
        self.assertEqual(self.account.stopped, {})
        self.assertTrue(all("-OLD" in table for of in self.account.serves_from().values() for table in of.values()))
        self.account.cfn_ExecuteChangeSet = execute
        self.assertEqual(self.run_it()[0], 0)
        self.assert_restored(set(change_tables(self.expanded)))

    def test_a_change_set_that_would_replace_a_table_is_not_run(self):
        changes = self.account.table_changes
        self.account.table_changes = lambda made: [*changes(made), ("PostsTable", change.TABLE, "Add")]
        self.refused("would add PostsTable: it was not run", "--tables", "ReadsTable")
        self.assertNotIn("executed UPDATE", self.account.events)
        self.assertEqual(self.account.stopped, {})

    def test_reserved_concurrency_comes_back(self):
        self.account.parameters |= {"ReserveConcurrency": "true", "FanOutConcurrency": "60"}
        self.assertEqual(self.run_it("--tables", "ReadsTable")[0], 0)
        reserved = {name.split("-")[1]: value for name, value in self.account.stopped.items()}
        self.assertEqual(reserved["FanOutFunction"], 60)
        self.assertNotIn(0, reserved.values())

    def test_another_restore_that_was_not_finished_is_not_mixed_with_this_one(self):
        self.run_it()
        number = self.account.asked.index("sqs PurgeQueue") + 1
        self.setUp()
        self.account.fails_after = number
        self.assertIn("The functions are stopped. Run the same command again", self.run_it()[1])
        self.account.fails_after = None
        self.refused("are being replaced by another restore", to="2026-11-26T17:59:00Z")
        self.assertEqual(self.run_it()[0], 0)
        self.assert_restored(set(change_tables(self.expanded)))


class Templates(unittest.TestCase):
    """The templates that CloudFormation gets."""

    @classmethod
    def setUpClass(cls):
        cls.expanded = json.loads(json.dumps(expand(str(ROOT / "template.yaml"))))
        cls.tables = sorted(change_tables(cls.expanded))
        cls.texts = {name: {"Ref": f"t-{name}", "Arn": f"arn:aws:dynamodb:eu-central-1:123456789012:table/t-{name}"} for name in cls.tables}
        for name in (name for name, one in change_tables(cls.expanded).items() if "StreamSpecification" in one["Properties"]):
            cls.texts[name]["StreamArn"] = f"{cls.texts[name]['Arn']}/stream/2026-11-26T18:30:00.000"

    def test_no_reference_to_a_table_is_left_and_the_import_adds_the_tables_alone(self):
        template = change.switched(self.expanded, self.texts)
        text = json.dumps(template["Resources"])
        for name in self.tables:
            for reference in (f'"Ref": "{name}"', f"${{{name}}}", f"${{{name}.", f'["{name}"', f'"{name}.'):
                self.assertNotIn(reference, text)
        whole = change.with_tables(template, self.expanded, self.tables)
        self.assertEqual(set(whole["Resources"]), set(self.expanded["Resources"]))
        self.assertTrue(all(whole["Resources"][name]["DeletionPolicy"].startswith("Retain") for name in self.tables))
        aliases = [one for one in template["Resources"].values() if one["Type"] == "AWS::Lambda::Alias"]
        self.assertEqual((len(aliases), any("UpdatePolicy" in one for one in aliases)), (13, False))

    def test_each_version_is_replaced_by_another_release(self):
        versions = [one for one in self.expanded["Resources"].values() if one["Type"] == "AWS::Lambda::Version"]
        self.assertEqual(len(versions), 13)
        self.assertTrue(all("${Release}" in json.dumps(one["Properties"]["Description"]) for one in versions))

    def test_an_unknown_kind_of_reference_is_refused(self):
        strange = {"Resources": {"PostsTable": {"Type": change.TABLE}, "Other": {"Type": "X", "Properties": {"A": {"Fn::Sub": ["${P}", {"P": {"Fn::GetAtt": ["PostsTable", "Other"]}}]}}}}}
        with self.assertRaises(KeyError):
            change.switched(strange, {"PostsTable": {"Ref": "t", "Arn": "a"}})

    def test_the_linter_of_cloudformation_finds_no_error(self):
        for template in (change.switched(self.expanded, self.texts), change.with_tables(change.switched(self.expanded, self.texts), self.expanded, self.tables)):
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                json.dump(template, file)
                file.flush()
                command = [Path(sys.executable).with_name("cfn-lint"), "--non-zero-exit-code", "error", "--format", "parseable", file.name]
                done = subprocess.run(command, capture_output=True, text=True, timeout=300)
                errors = [line for line in done.stdout.splitlines() if ":E" in line]
                self.assertEqual(errors, [])


if __name__ == "__main__":
    unittest.main()
