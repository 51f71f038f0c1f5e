"""Changes openapi.yaml in one place each, and looks at what `breaking.py` says. `make openapi-breaking-check` runs this."""

import copy
import unittest
from pathlib import Path

import yaml

from breaking import breaks

DOCUMENT = yaml.safe_load((Path(__file__).resolve().parents[2] / "openapi.yaml").read_text(encoding="utf-8"))


class Breaking(unittest.TestCase):
    def said(self, change):
        after = copy.deepcopy(DOCUMENT)
        change(after)
        return breaks(DOCUMENT, after)

    def schema(self, document, name):
        return document["components"]["schemas"][name]

    def of(self, operation, direction):
        """The name of the schema of a body."""
        content = operation["requestBody"]["content"] if direction == "request" else operation["responses"]["200"]["content"]
        return content["application/json"]["schema"]["$ref"].split("/")[-1]

    def test_no_change_and_additions_break_nothing(self):
        self.assertEqual(self.said(lambda after: None), [])

        def add(after):
            after["paths"]["/v1/more"] = after["paths"]["/v1/feed"]
            feed = after["paths"]["/v1/feed"]["get"]
            feed["parameters"].append({"name": "more", "in": "query", "schema": {"type": "string"}})
            self.schema(after, self.of(feed, "response"))["properties"]["more"] = {"type": "string"}
            request = self.schema(after, self.of(after["paths"]["/v1/posts"]["post"], "request"))
            request["properties"]["more"] = {"type": "string"}

        self.assertEqual(self.said(add), [])

    def test_a_renamed_parameter_of_a_path_breaks_nothing(self):
        def rename(after):
            path = after["paths"].pop("/v1/posts/{post}")
            after["paths"]["/v1/posts/{id}"] = path

        self.assertEqual(self.said(rename), [])

    def test_what_is_gone_breaks(self):
        self.assertEqual(self.said(lambda after: after["paths"].pop("/v1/feed")), ["GET /v1/feed: the operation is gone"])

        def response(after):
            del after["paths"]["/v1/feed"]["get"]["responses"]["200"]

        self.assertEqual(self.said(response), ["GET /v1/feed: the response 200 is gone"])

        def parameter(after):
            after["paths"]["/v1/feed"]["get"]["parameters"].pop(0)

        self.assertRegex(self.said(parameter)[0], "GET /v1/feed: the parameter .* is gone")

        def field(after):
            schema = self.schema(after, self.of(after["paths"]["/v1/feed"]["get"], "response"))
            del schema["properties"]["next_cursor"]
            schema["required"].remove("next_cursor")

        self.assertIn("GET /v1/feed 200: the property next_cursor is gone", self.said(field))

    def test_what_is_newly_required_breaks(self):
        def field(after):
            name = self.of(after["paths"]["/v1/posts"]["post"], "request")
            self.schema(after, name).setdefault("required", []).append("body")

        self.assertIn("POST /v1/posts body: the property body is required", self.said(field))

        def parameter(after):
            after["paths"]["/v1/feed"]["get"]["parameters"].append({"name": "more", "in": "query", "required": True, "schema": {}})

        self.assertEqual(self.said(parameter), ["GET /v1/feed: the parameter more is new and required"])

    def test_a_field_of_a_response_that_may_be_absent_or_null_breaks(self):
        def absent(after):
            self.schema(after, self.of(after["paths"]["/v1/feed"]["get"], "response"))["required"].remove("items")

        self.assertIn("GET /v1/feed 200: the property items may be absent", self.said(absent))

        def null(after):
            schema = self.schema(after, self.of(after["paths"]["/v1/feed"]["get"], "response"))
            schema["properties"]["items"]["type"] = ["array", "null"]

        self.assertIn("GET /v1/feed 200.items: null is a new kind of value", self.said(null))

    def test_a_narrower_request_breaks_and_a_wider_one_does_not(self):
        def title(most):
            def change(after):
                name = self.of(after["paths"]["/v1/posts"]["post"], "request")
                self.schema(after, name)["properties"]["title"] = {"type": "string", "maxLength": most}

            return [line for line in self.said(change) if "maxLength" in line]

        self.assertEqual(len(title(10)), 1)
        self.assertEqual(title(100_000), [])


if __name__ == "__main__":
    unittest.main()
