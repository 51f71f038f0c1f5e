"""Which credentials a command gets from `stack.py`. `make preflight-check` runs this."""

import sys
import unittest
from pathlib import Path

from botocore.credentials import Credentials

sys.path.insert(0, str(Path(__file__).resolve().parent))

import stack  # noqa: E402

INHERITED = {"AWS_PROFILE": "mine", "AWS_SESSION_TOKEN": "of another session", "PATH": "/bin"}


class Environment(unittest.TestCase):
    def test_a_command_finds_keys_of_files_by_itself(self):
        self.assertEqual(stack.environment(Credentials("a", "b", None, method="shared-credentials-file"), INHERITED), INHERITED)

    def test_a_command_gets_credentials_of_sso_and_of_a_process(self):
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        for method in ["sso", "custom-process", "assume-role"]:
            found = stack.environment(Credentials("a", "b", "c", method=method), INHERITED)
            self.assertEqual(found, INHERITED | keys | {"AWS_SESSION_TOKEN": "c"})
        found = stack.environment(Credentials("a", "b", None, method="custom-process"), INHERITED)
        self.assertEqual(found, {"AWS_PROFILE": "mine", "PATH": "/bin"} | keys)


if __name__ == "__main__":
    unittest.main()
