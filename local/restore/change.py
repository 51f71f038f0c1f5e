"""The templates of a restore, made from the one that the stack has.

CloudFormation cannot give another table to a resource that it has. It can let a resource go (its policy retains the table) and import a table
under the same logical id. So there are three templates:

1. `switched`: the tables are gone, and everything that referred to them names the restored ones.
2. `with_tables`: the same with the tables as they were declared, for the import.
3. the template of the stack as it was. Its references have the restored names now.
"""

import copy
import re

TABLE = "AWS::DynamoDB::Table"


class Dangling(Exception):
    """A reference to a table that cannot be replaced by a text."""


def tables(template):
    """The tables that a template declares, by logical id."""
    return {name: one for name, one in template["Resources"].items() if one["Type"] == TABLE}


def switched(template, restored):
    """The template without these tables. `restored` has the texts for `Ref`, `Arn` and `StreamArn` of each logical id."""
    changed = copy.deepcopy(template)
    for name in restored:
        del changed["Resources"][name]
    for one in changed["Resources"].values():
        if one["Type"] == "AWS::Lambda::Alias":
            # Otherwise CodeDeploy shifts callers step by step, and takes back the change if an alarm is on.
            one.pop("UpdatePolicy", None)
        if after := [name for name in listed(one.pop("DependsOn", [])) if name not in restored]:
            one["DependsOn"] = after
    changed = replaced(changed, restored)
    if left := references(changed) & restored.keys():
        raise Dangling(f"it refers to {', '.join(sorted(left))} in a way that this script does not know")
    return changed


def is_switched(template):
    """Whether functions name tables by a text: a restore has begun and not ended."""
    functions = [one["Properties"] for one in template["Resources"].values() if one["Type"] == "AWS::Lambda::Function"]
    variables = [one for function in functions for one in function["Environment"]["Variables"].items()]
    return any(name.endswith("_TABLE") and isinstance(value, str) for name, value in variables)


def with_tables(template, original, names):
    """A switched template with the tables as the original declares them."""
    changed = copy.deepcopy(template)
    changed["Resources"] |= {name: original["Resources"][name] for name in names}
    return changed


def listed(value):
    return value if isinstance(value, list) else [value]


def references(value):
    """The names that a value refers to."""
    if isinstance(value, list):
        return set().union(*map(references, value))
    if not isinstance(value, dict):
        return set()
    found = set()
    for key, inner in value.items():
        if key == "Ref" and isinstance(inner, str):
            found.add(inner)
        elif key == "Fn::GetAtt":
            found.add(inner.split(".")[0] if isinstance(inner, str) else inner[0])
        elif key == "DependsOn":
            found |= set(listed(inner))
        elif key == "Fn::Sub":
            pattern, own = (inner, {}) if isinstance(inner, str) else inner
            named = {name.split(".")[0] for name in re.findall(r"\$\{([A-Za-z0-9.:]+)\}", pattern)}
            found |= (named - own.keys()) | references(own)
        else:
            found |= references(inner)
    return found


def replaced(value, restored):
    """The value with texts instead of references to these tables."""
    if isinstance(value, list):
        return [replaced(one, restored) for one in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((function, argument),) = value.items()
        if function == "Ref" and argument in restored:
            return restored[argument]["Ref"]
        if function == "Fn::GetAtt":
            name, attribute = argument.split(".", 1) if isinstance(argument, str) else argument
            if name in restored:
                return restored[name][attribute]
        if function == "Fn::Sub":
            return {function: substituted(argument, restored)}
    return {key: replaced(one, restored) for key, one in value.items()}


def substituted(argument, restored):
    """The argument of `Fn::Sub`, whose pattern has references as `${Table}` and `${Table.Arn}`."""
    pattern, names = (argument, None) if isinstance(argument, str) else argument

    def text(match):
        name, _, attribute = match[1].partition(".")
        if name not in restored or (names and name in names):
            return match[0]
        return restored[name][attribute or "Ref"]

    pattern = re.sub(r"\$\{([A-Za-z0-9.]+)\}", text, pattern)
    return pattern if names is None else [pattern, replaced(names, restored)]
