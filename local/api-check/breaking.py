"""Lists what a change of openapi.yaml breaks for clients of the document before: `breaking.py before.yaml after.yaml`.

Additions break nothing: operations, optional parameters and properties of requests, properties of responses, values of a response's
enumeration. Exit status: 0 if nothing breaks, 1 with a line for each thing that does, 2 if a document cannot be read.
"""

import json
import re
import sys

import yaml

METHODS = ("get", "put", "post", "delete", "patch", "head", "options")
REQUEST, RESPONSE = "request", "response"
# Bounds of a request that break clients when they become smaller, or larger.
UPPER, LOWER = ("maximum", "maxLength", "maxItems"), ("minimum", "minLength", "minItems")


class Comparison:
    def __init__(self, before, after):
        self.before, self.after = before, after
        self.found, self.seen = [], set()

    def say(self, where, what):
        line = f"{where}: {what}"
        if line not in self.found:
            self.found.append(line)

    def resolve(self, document, value):
        while isinstance(value, dict) and "$ref" in value:
            target = document
            for part in value["$ref"].removeprefix("#/").split("/"):
                target = target[part.replace("~1", "/").replace("~0", "~")]
            value = target
        return value if value is not None else {}

    def both(self, before, after):
        return self.resolve(self.before, before), self.resolve(self.after, after)

    def run(self):
        for path, methods in self.before["paths"].items():
            # The name of a parameter in a path is not part of a request.
            same = next((other for other in self.after["paths"] if bare(other) == bare(path)), None)
            for method in METHODS:
                if method in methods:
                    where = f"{method.upper()} {path}"
                    others = self.after["paths"].get(same, {})
                    if method not in others:
                        self.say(where, "the operation is gone")
                        continue
                    shared = [one.get("parameters", []) for one in (methods, others)]
                    self.parameters(where, *(all + one[method].get("parameters", []) for all, one in zip(shared, (methods, others))))
                    self.operation(where, methods[method], others[method])
        return self.found

    def operation(self, where, before, after):
        old, new = self.both(before.get("requestBody", {}), after.get("requestBody", {}))
        if new.get("required") and not old.get("required"):
            self.say(where, "a body is required")
        self.contents(f"{where} body", old, new, REQUEST)
        for status, response in before.get("responses", {}).items():
            if status not in after.get("responses", {}):
                if status.startswith("2"):
                    self.say(where, f"the response {status} is gone")
                continue
            old, new = self.both(response, after["responses"][status])
            for name in old.get("headers", {}):
                if name not in new.get("headers", {}):
                    self.say(f"{where} {status}", f"the header {name} is gone")
            self.contents(f"{where} {status}", old, new, RESPONSE)

    def parameters(self, where, before, after):
        named = [{(one["in"], position(one, at)): one for at, one in enumerate(map(lambda each: self.resolve(document, each), list))}
                 for document, list in ((self.before, before), (self.after, after))]
        for key, old in named[0].items():
            if key not in named[1]:
                self.say(where, f"the parameter {old['name']} is gone")
                continue
            new = named[1][key]
            if new.get("required") and not old.get("required"):
                self.say(where, f"the parameter {old['name']} is required")
            self.schema(f"{where} {old['name']}", old.get("schema", {}), new.get("schema", {}), REQUEST)
        for key, new in named[1].items():
            if key not in named[0] and new.get("required"):
                self.say(where, f"the parameter {new['name']} is new and required")

    def contents(self, where, before, after, direction):
        for kind, content in before.get("content", {}).items():
            if kind not in after.get("content", {}):
                self.say(where, f"{kind} is gone")
            else:
                self.schema(where, content.get("schema", {}), after["content"][kind].get("schema", {}), direction)

    def schema(self, where, before, after, direction):
        key = (json.dumps(before, sort_keys=True), json.dumps(after, sort_keys=True), direction)
        if key in self.seen:
            return
        self.seen.add(key)
        before, after = self.both(before, after)
        old, new = alternatives(before), alternatives(after)
        # Names of schemas are not part of a body.
        renamed = [[name for name in one if name not in other and name.startswith("#")] for one, other in ((old, new), (new, old))]
        if len(renamed[0]) == len(renamed[1]):
            for name, other in zip(*renamed):
                self.schema(where, old.pop(name), new.pop(other), direction)
        # A request may have fewer alternatives before, a response fewer afterwards.
        least, most, words = (old, new, "is no longer accepted") if direction == REQUEST else (new, old, "is a new kind of value")
        for name in least:
            if name not in most and not (name == "integer" and "number" in most) and "any" not in most:
                self.say(where, f"{name} {words}")
        for name in old:
            if name in new and (old[name] is not before or new[name] is not after):
                self.schema(where, old[name], new[name], direction)
            elif name in new:
                self.value(where, before, after, direction)

    def value(self, where, before, after, direction):
        old, new = before.get("properties", {}), after.get("properties", {})
        for name in old:
            if name not in new:
                self.say(where, f"the property {name} is gone")
            else:
                self.schema(f"{where}.{name}", old[name], new[name], direction)
        required = [set(one.get("required", [])) for one in (before, after)]
        if direction == REQUEST:
            for name in sorted(required[1] - required[0]):
                self.say(where, f"the property {name} is required")
            self.bounds(where, before, after)
        else:
            for name in sorted(required[0] - required[1]):
                if name in new:
                    self.say(where, f"the property {name} may be absent")
        for name in ("items", "additionalProperties"):
            if isinstance(before.get(name), dict) and isinstance(after.get(name), dict):
                self.schema(f"{where}[]", before[name], after[name], direction)

    def bounds(self, where, before, after):
        for value in before.get("enum", []) if "enum" in after else []:
            if value not in after["enum"]:
                self.say(where, f"the value {value} is gone")
        if "enum" in after and "enum" not in before:
            self.say(where, "only some values are accepted")
        for name, is_narrower in [(name, lambda new, old: new < old) for name in UPPER] + [(name, lambda new, old: new > old) for name in LOWER]:
            if name in after and (name not in before or is_narrower(after[name], before[name])):
                self.say(where, f"{name} is {after[name]}, and was {before.get(name, 'not set')}")
        if after.get("pattern") not in (None, before.get("pattern")):
            self.say(where, f"the pattern is {after['pattern']}, and was {before.get('pattern', 'not set')}")


def bare(path):
    return re.sub(r"\{[^}]*\}", "{}", path)


def position(parameter, at):
    return at if parameter["in"] == "path" else parameter["name"]


def alternatives(schema):
    """The kinds of value that a schema allows, by name: a type, or a reference."""
    parts = schema.get("oneOf") or schema.get("anyOf")
    if parts:
        return {part.get("$ref") or part.get("type") and str(part["type"]) or json.dumps(part, sort_keys=True): part for part in parts}
    kinds = schema.get("type", "any")
    return {kind: schema for kind in (kinds if isinstance(kinds, list) else [kinds])}


def breaks(before, after):
    return Comparison(before, after).run()


def main():
    try:
        documents = [yaml.safe_load(open(path, encoding="utf-8")) for path in sys.argv[1:3]]
        found = breaks(*documents)
    except (OSError, TypeError, KeyError, yaml.YAMLError) as error:
        print(f"openapi-breaking: {error}", file=sys.stderr)
        sys.exit(2)
    for line in found:
        print(f"breaking: {line}")
    print(f"openapi-breaking: {len(found)} breaking changes" if found else "openapi-breaking: nothing breaks")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
