"""The template's parameters, rules, conditions and resources, with the values of one deployment."""

import functools
import json
import re
import shlex
from pathlib import Path

import tomlkit
from samtranslator.yaml_helper import yaml_parse


class Mistake(Exception):
    """A sentence that says what stops the deployment, and what to do."""


def pairs(text):
    """`Name=Value` pairs, as `sam deploy --parameter-overrides` takes them."""
    given = {}
    for pair in shlex.split(text):
        name, equals, value = pair.partition("=")
        if not equals or name.startswith("ParameterKey"):
            raise Mistake(f"`{pair}` is not of the form Name=Value.")
        given[name] = value
    return given


def environment(path, name):
    """Stack name, region and parameter overrides of an environment of samconfig.toml."""
    config = tomlkit.parse(Path(path).read_text(encoding="utf-8"))
    known = [key for key, table in config.items() if isinstance(table, dict)]
    if name not in known:
        raise Mistake(f"{path} has no environment `{name}`; it has {', '.join(known)}.")
    tables = [config[name].get(command, {}).get("parameters", {}) for command in ("global", "deploy")]
    settings = {key: value for table in tables for key, value in table.items()}
    overrides = settings.get("parameter_overrides", "")
    return settings.get("stack_name"), settings.get("region"), pairs(overrides if isinstance(overrides, str) else shlex.join(overrides))


@functools.cache
def parsed(path):
    return yaml_parse(Path(path).read_text(encoding="utf-8"))


class Template:
    """The template with values. `given` overrides `previous`, the values of an existing stack, and they the defaults."""

    def __init__(self, path, given, previous=None):
        body = parsed(path)
        self.declared, self.rules = body["Parameters"], body.get("Rules", {})
        self.conditions, self.resources = body.get("Conditions", {}), body["Resources"]
        self.given = given
        defaults = {name: str(one["Default"]) for name, one in self.declared.items() if "Default" in one}
        known = {name: value for name, value in (previous or {}).items() if name in self.declared}
        # CloudFormation does not show the value of a secret parameter, also if it is empty.
        self.hidden = [name for name in known if self.declared[name].get("NoEcho") and name not in given]
        self.values = defaults | {name: value for name, value in known.items() if name not in self.hidden} | given

    def mistakes(self):
        """What CloudFormation would refuse: unknown names, constraints, rules."""
        found = []
        for name in self.given:
            if name not in self.declared:
                found.append(f"The template has no parameter `{name}`; its parameters are {', '.join(self.declared)}.")
        for name, declared in self.declared.items():
            if name not in self.values:
                found.append(f"Parameter {name} has neither a value nor a default.")
            elif sentence := refusal(name, declared, self.values[name]):
                found.append(sentence)
        for rule in self.rules.values():
            if any(f'{{"Ref": "{name}"}}' in json.dumps(rule) for name in self.hidden):
                continue
            if self.truth(rule.get("RuleCondition", True)):
                found += [one["AssertDescription"] for one in rule["Assertions"] if not self.truth(one["Assert"])]
        return found

    def __getitem__(self, name):
        return self.values.get(name, "")

    def list(self, name):
        return [item.strip() for item in self[name].split(",") if item.strip()]

    def number(self, value):
        """The number that a property has: itself, or a parameter's value."""
        return int(self[value["Ref"]]) if isinstance(value, dict) else int(value)

    def has(self, resource):
        """Whether the stack has the resource."""
        condition = self.resources.get(resource, {}).get("Condition")
        return resource in self.resources and (condition is None or self.truth({"Condition": condition}))

    def of_type(self, kind):
        return {name: one for name, one in self.resources.items() if one["Type"] == kind and self.has(name)}

    def value(self, expression):
        """A parameter's value, as a list for a list type; a joined list; or the literal."""
        if isinstance(expression, dict):
            ((name, argument),) = expression.items()
            if name == "Ref":
                is_list = self.declared[argument]["Type"] == "CommaDelimitedList"
                return [item.strip() for item in self[argument].split(",")] if is_list else self[argument]
            if name == "Fn::Join":
                return argument[0].join(self.value(argument[1]))
            if name == "Fn::If":
                return self.value(argument[1] if self.truth({"Condition": argument[0]}) else argument[2])
            raise ValueError(f"preflight cannot evaluate {name}")
        return expression if isinstance(expression, (list, bool)) else str(expression)

    def truth(self, expression):
        """Whether a condition or an assertion holds."""
        if isinstance(expression, bool):
            return expression
        ((name, argument),) = expression.items()
        match name:
            case "Condition":
                return self.truth(self.conditions[argument])
            case "Fn::Not":
                return not self.truth(argument[0])
            case "Fn::And":
                return all(self.truth(one) for one in argument)
            case "Fn::Or":
                return any(self.truth(one) for one in argument)
            case "Fn::Equals":
                return self.value(argument[0]) == self.value(argument[1])
            case "Fn::Contains":
                return self.value(argument[1]) in self.value(argument[0])
        raise ValueError(f"preflight cannot evaluate {name}")


def refusal(name, declared, value):
    """A sentence if CloudFormation refuses the value, or None."""
    shown = f"the value of {name}" if declared.get("NoEcho") else f"{name}={value}"
    allowed = [str(one) for one in declared.get("AllowedValues", [])]
    if allowed and value not in allowed:
        return f"{shown} is not one of {', '.join(allowed)}."
    pattern = declared.get("AllowedPattern")
    for item in value.split(",") if declared["Type"] == "CommaDelimitedList" else [value]:
        if pattern and not re.fullmatch(pattern, item.strip()):
            wanted = declared.get("ConstraintDescription", f"a text that matches {pattern}")
            return f"{shown} is not valid; it must be {wanted}."
    size, unit = len(value), "characters"
    if declared["Type"] == "Number":
        try:
            size, unit = float(value), ""
        except ValueError:
            return f"{shown} is not a number."
    kind = "Value" if declared["Type"] == "Number" else "Length"
    least, most = declared.get(f"Min{kind}"), declared.get(f"Max{kind}")
    if least is not None and size < least:
        return f"{shown} is less than {least} {unit}".rstrip() + "."
    if most is not None and size > most:
        return f"{shown} is more than {most} {unit}".rstrip() + "."
    return None
