"""Runs `preflight.py` against a fake of AWS and an issuer on loopback, with each mistake. `make preflight-check` runs this."""

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))

import preflight  # noqa: E402
from fake_aws import RSA_KEY, Answers, FakeAws, FakeIssuer  # noqa: E402
from template import Template  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
NETWORK = ("VpcId=vpc-1", "SubnetIds=subnet-1,subnet-2")


class Preflight(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.aws, cls.issuer = FakeAws(), FakeIssuer(cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.aws.close()
        cls.issuer.close()
        cls.folder.cleanup()

    def setUp(self):
        self.aws.answers = Answers()
        self.issuer.reset()

    def run_it(self, *values, environment="prod", options=(), env=(), issuer=True):
        """Exit code and output, with values that every check accepts unless a test overrides them."""
        fine = {"AlarmEmail": "ops@tidemark.test", "RedisNodeType": "cache.m7g.large"} if environment == "prod" else {}
        if issuer:
            fine["JwtIssuer"] = self.issuer.url
        given = fine | dict(value.split("=", 1) for value in values)
        base = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        account = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_ENDPOINT_URL": self.aws.url, "AWS_DEFAULT_REGION": "eu-central-1"}
        base |= {"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
        changed = base | account | {"SSL_CERT_FILE": str(self.issuer.certificate)} | dict(env)
        files = ("--template", str(ROOT / "template.yaml"), "--samconfig", str(ROOT / "samconfig.toml"))
        printed = io.StringIO()
        with mock.patch.dict(os.environ, changed, clear=True), contextlib.redirect_stdout(printed), self.assertRaises(SystemExit) as exited:
            preflight.main(["--environment", environment, *files, *options, *(f"{name}={value}" for name, value in given.items())])
        return exited.exception.code, printed.getvalue()

    def refused(self, sentence, *values, others=0, **options):
        """The one mistake, and exit code 1."""
        code, output = self.run_it(*values, **options)
        found = [line.removeprefix("mistake: ") for line in output.splitlines() if line.startswith("mistake: ")]
        self.assertEqual(code, 1, output)
        self.assertEqual(len(found), 1 + others, output)
        self.assertTrue(any(re.search(sentence, one) for one in found), output)
        self.assertTrue(all(one.endswith(".") for one in found), output)

    def test_a_deployment_without_mistakes_passes_and_says_what_it_costs(self):
        for environment, total in (("prod", r"Redis: 2 × cache\.m7g\.large with Valkey +184\.54"), ("dev", r"Redis: 1 × cache\.t4g\.micro with Valkey +9\.34")):
            code, output = self.run_it(environment=environment)
            self.assertEqual(code, 0, output)
            self.assertRegex(output, total)
            self.assertRegex(output, r"Total +\d+\.\d\d")
            self.assertIn("preflight: no mistakes", output)

    def test_a_login_with_iam_has_no_password_to_pay_for(self):
        for arguments, pays in (((), True), (("RedisAuth=iam",), False)):
            code, output = self.run_it(*arguments)
            self.assertEqual((code, "The password of Redis" in output), (0, pays), output)

    def test_examples_of_the_template_are_refused(self):
        self.refused("JwtIssuer is an example", issuer=False)
        self.refused("AlarmEmail is an example", "AlarmEmail=ops@example.com")

    def test_values_and_names_that_cloudformation_refuses_are_refused(self):
        self.refused("no parameter `RedisNodetype`", "RedisNodetype=cache.m7g.large")
        self.refused("FollowingLimit=501 is more than 500", "FollowingLimit=501")
        self.refused("LogLevel=loud is not one of WARN, INFO", "LogLevel=loud")
        self.refused("RankHalfLife=12h is not a number", "RankHalfLife=12h")
        self.refused("it must be an https address", "JwtIssuer=http://127.0.0.1/")
        self.refused("VpcId needs SubnetIds", "VpcId=vpc-1")
        self.refused("SubnetIds needs VpcId", "SubnetIds=subnet-1,subnet-2")
        self.refused("LegacyFollow needs LegacyRedisUrl", "LegacyFollow=true")
        self.refused("LegacyRedisUrl needs UserIds=numeric", "LegacyRedisUrl=redis://legacy.tidemark.test:6379")
        self.refused("MonthlyBudget needs AlarmEmail", "MonthlyBudget=300", "AlarmEmail=")
        self.refused("need each other", "MostReadUnits=1000")
        self.refused("RedisReplicaReads needs RedisReplicas=1", "RedisReplicaReads=true", "RedisReplicas=0")
        self.refused("RedisCluster needs RedisUrl", "RedisCluster=true")
        self.refused("RedisAuth=iam needs the Redis that the stack creates", "RedisAuth=iam", "RedisUrl=rediss://user:word@redis.tidemark.test:6380")
        self.refused("AlarmEmail needs Alarms=true", "Alarms=false")
        self.refused("the value of RedisUrl is not valid", "RedisUrl=secret:6379")

    def test_a_secret_is_not_shown(self):
        self.assertNotIn("secret", self.run_it("RedisUrl=secret:6379")[1])

    def test_an_issuer_that_api_gateway_cannot_use_is_refused(self):
        place = "/.well-known/openid-configuration"
        self.refused("cannot be read: .*Connection refused", "JwtIssuer=https://127.0.0.1:9/")
        self.refused("returns 404", f"JwtIssuer={self.issuer.url}realm")
        self.refused(f"its issuer is {self.issuer.url}", f"JwtIssuer={self.issuer.url.rstrip('/')}")
        for document, sentence in (
            ("<html>", "is not JSON"),
            ({"issuer": self.issuer.url}, "has no `jwks_uri`"),
            ({"issuer": self.issuer.url, "jwks_uri": "http://127.0.0.1/keys"}, "is not https"),
            ({"issuer": self.issuer.url, "jwks_uri": f"{self.issuer.url}gone"}, "The key set of JwtIssuer cannot be read: .* returns 404"),
        ):
            self.issuer.set(place, document)
            self.refused(sentence)
        self.issuer.reset()
        for keys in ([], [RSA_KEY | {"use": "enc"}], [{"kty": "EC", "crv": "P-256", "x": "AQAB", "y": "AQAB"}]):
            self.issuer.set("/keys", {"keys": keys})
            self.refused("has no RSA key for signatures")

    def test_an_untrusted_certificate_of_the_issuer_is_refused(self):
        self.refused("CERTIFICATE_VERIFY_FAILED", env={"SSL_CERT_FILE": os.devnull})

    def test_credentials_and_a_region_are_needed(self):
        self.aws.answers.credentials = False
        self.refused("does not accept the credentials", options=())
        self.refused("No region is set", env={"AWS_DEFAULT_REGION": ""})
        self.assertEqual(self.run_it(options=("--offline",))[0], 0)

    def test_an_account_without_a_role_for_access_logs_needs_the_stack_s(self):
        self.refused("has no role for the access logs of API Gateway in eu-central-1", "ApiLogsRole=existing")
        self.aws.answers.role = "arn:aws:iam::123456789012:role/own"
        self.assertEqual(self.run_it("ApiLogsRole=existing")[0], 0)
        code, output = self.run_it()
        self.assertEqual(code, 0, output)
        self.assertIn("note: The account's role for access logs is arn:aws:iam::123456789012:role/own", output)

    def test_too_little_concurrency_is_refused(self):
        self.aws.answers.concurrency = (10, 10)
        self.refused("concurrency of 10, which 40 workers")
        self.assertEqual(self.run_it("FanOutConcurrency=2")[0], 0)
        self.aws.answers.concurrency = (1000, 191)
        self.refused("reserves 92 of .*has 191 that is not reserved", "ReserveConcurrency=true")
        self.aws.answers.concurrency = (1000, 192)
        self.assertEqual(self.run_it("ReserveConcurrency=true")[0], 0)

    def test_a_stack_that_has_its_reservation_needs_it_only_once(self):
        self.aws.answers.concurrency = (1000, 100)
        self.aws.answers.stack = ("UPDATE_COMPLETE", {"ReserveConcurrency": "true", "FanOutConcurrency": "40", "ReconcileConcurrency": "2"})
        self.assertEqual(self.run_it()[0], 0)
        self.refused("reserves 93 of", "FanOutConcurrency=41")

    def test_subnets_must_exist_belong_to_the_vpc_and_lie_in_two_zones(self):
        self.assertEqual(self.run_it(*NETWORK)[0], 0)
        self.refused("a subnet that does not exist", "VpcId=vpc-1", "SubnetIds=subnet-1,subnet-9")
        self.refused("has subnet-1, subnet-2, which VpcId=vpc-2 does not have", "VpcId=vpc-2", "SubnetIds=subnet-1,subnet-2")
        self.refused("All SubnetIds are in eu-central-1a", "VpcId=vpc-1", "SubnetIds=subnet-1")

    def test_a_burstable_node_is_refused_for_prod_and_noted_elsewhere(self):
        self.refused("RedisNodeType=cache.t4g.small is burstable", "RedisNodeType=cache.t4g.small")
        self.assertIn("note: RedisNodeType=cache.t4g.micro is burstable", self.run_it(environment="dev")[1])
        self.assertNotIn("burstable", self.run_it("RedisUrl=rediss://a:b@redis.tidemark.test", "RedisNodeType=cache.t4g.small")[1])

    def test_a_node_that_the_region_does_not_offer_is_refused(self):
        self.refused("does not offer RedisNodeType=cache.m99g.large in eu-central-1", "RedisNodeType=cache.m99g.large")

    def test_a_stack_in_a_bad_state_is_refused(self):
        for status, sentence in (
            ("ROLLBACK_COMPLETE", "cannot be updated: delete it first"),
            ("ROLLBACK_FAILED", "cannot be updated: delete it first"),
            ("DELETE_FAILED", "cannot be updated: delete it first"),
            ("UPDATE_ROLLBACK_FAILED", "continue-update-rollback"),
            ("UPDATE_IN_PROGRESS", "wait until that is done"),
        ):
            self.aws.answers.stack = (status, {})
            self.refused(sentence)

    def test_deletion_protection_is_for_the_second_deployment(self):
        self.refused("its rollback would fail", "DeletionProtection=true")
        self.aws.answers.stack = ("CREATE_COMPLETE", {})
        self.assertEqual(self.run_it("DeletionProtection=true")[0], 0)
        self.assertIn("deploy with DeletionProtection=true", self.run_it()[1])

    def test_values_of_an_existing_stack_count_as_sam_deploy_keeps_them(self):
        self.aws.answers.stack = ("CREATE_COMPLETE", {"RedisShards": "3", "RedisUrl": "****"})
        self.assertIn("Redis: 6 × cache.m7g.large", self.run_it()[1])

    def test_a_secret_of_an_existing_stack_breaks_no_rule(self):
        self.aws.answers.stack = ("CREATE_COMPLETE", {"LegacyFollow": "true", "LegacyRedisUrl": "****", "UserIds": "numeric"})
        code, output = self.run_it()
        self.assertEqual(code, 0, output)
        self.assertIn("note: LegacyRedisUrl keep", output)
        self.refused("the value of LegacyRedisUrl is not valid", "LegacyRedisUrl=legacy:6379")

    def test_what_cannot_be_checked_is_a_mistake(self):
        self.aws.answers.denied = {"elasticache"}
        self.refused("Not checked, the type of Redis node: .*AccessDenied")

    def test_an_unknown_environment_and_a_value_without_a_name_are_refused(self):
        self.refused("no environment `live`; it has default, dev, prod", environment="live")
        command = [sys.executable, "local/preflight/preflight.py", "--offline", "cache.m7g.large"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        self.assertIn("`cache.m7g.large` is not of the form Name=Value", done.stdout)


class Names(unittest.TestCase):
    def test_long_names_are_refused_and_shortened_ones_noted(self):
        template = Template(ROOT / "template.yaml", {})
        self.assertEqual(preflight.name_mistakes("tidemark-dev", template) + preflight.name_notes("tidemark-dev", template), [])
        for name, sentence in (
            ("a" * 129, "is not valid"),
            ("2fast", "is not valid"),
            ("tide_mark", "is not valid"),
            ("", "names no stack"),
            ("a" * 124, "name of LiveApi would be too long: use at most 123"),
        ):
            self.assertRegex(" ".join(preflight.name_mistakes(name, template)), sentence)
        self.assertEqual(preflight.name_notes("a" * 28, template), [])
        self.assertRegex(preflight.name_notes("a" * 29, template)[0], "LiveAuthorizerFunction first. A stack name of at most 28")


if __name__ == "__main__":
    unittest.main()
