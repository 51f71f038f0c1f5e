"""Checks a deployment before it begins, and says what the stack costs a month: `make preflight ENV=prod`.

    preflight.py [--environment dev] [--region eu-central-1] [--offline] [Name=Value …]

Values of parameters are those of samconfig.toml, those given here, those of an existing stack, and the template's defaults, as
`sam deploy` takes them. Each mistake is one sentence. Exit status: 0 without mistakes, 1 with some, 2 if the options are wrong.
"""

import argparse
import re
import sys

from botocore.exceptions import BotoCoreError, ClientError

import account as aws
import cost
import issuer
from template import Mistake, Template, environment, pairs

STACK_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
# CloudFormation joins the stack's name, the logical id and twelve characters with dashes, and shortens what is longer.
SUFFIX, FUNCTION_NAME = 14, 64
# The longest names that API Gateway and CloudFormation accept.
API_NAME, LONGEST_STACK_NAME = 128, 128


def name_mistakes(name, template):
    """A stack's name that AWS refuses, or from which a name in the template becomes too long."""
    if not name:
        return ["samconfig.toml names no stack: set stack_name."]
    if not STACK_NAME.fullmatch(name) or len(name) > LONGEST_STACK_NAME:
        return [f"Stack name {name} is not valid: it begins with a letter and has letters, digits and dashes, at most {LONGEST_STACK_NAME}."]
    for resource, body in template.of_type("AWS::ApiGatewayV2::Api").items():
        pattern = body["Properties"]["Name"]["Fn::Sub"]
        most = API_NAME - len(pattern.replace("${AWS::StackName}", ""))
        if len(name) > most:
            return [f"Stack name {name} has {len(name)} characters, and the name of {resource} would be too long: use at most {most}."]
    return []


def name_notes(name, template):
    """A stack's name whose functions get names that CloudFormation shortens."""
    longest = max(template.of_type("AWS::Serverless::Function"), key=len)
    most = FUNCTION_NAME - SUFFIX - len(longest)
    if len(name) > most:
        return [f"Names of functions are shortened to {FUNCTION_NAME} characters, {longest} first. A stack name of at most {most} characters prevents it."]
    return []


def burstable(template):
    return template.has("Redis") and re.match(r"cache\.t\d", template["RedisNodeType"])


def node_mistakes(template, which):
    if which == "prod" and burstable(template):
        return [
            f"RedisNodeType={template['RedisNodeType']} is burstable: in the long run it may use a part of a core only, and slows down when its"
            " credits are used up. Use cache.m7g.large or larger for users."
        ]
    return []


def check(options):
    """Mistakes, notes, and the template with its values, or None if it cannot be read."""
    try:
        name, region, given = environment(options.samconfig, options.environment)
        given |= dict(pair for text in options.values for pair in pairs(text).items())
    except Mistake as mistake:
        return [str(mistake)], [], None
    found, notes, stack, session = [], [], None, None
    if not options.offline:
        session = aws.Account(options.region or region)
        try:
            session.check_credentials()
            stack = session.stack(name) if name else None
        except Mistake as mistake:
            found.append(str(mistake))
            session = None
        except (BotoCoreError, ClientError) as error:
            found.append(f"Not checked, the state of the stack: {aws.told(error)}.")
    previous = {one["ParameterKey"]: one.get("ParameterValue", "") for one in (stack or {}).get("Parameters", [])}
    template = Template(options.template, given, previous)
    refused = template.mistakes()
    found += refused
    if refused:
        # What follows needs values that CloudFormation accepts.
        return found, notes, None
    if template.hidden:
        notes.append(f"{' and '.join(template.hidden)} keep the values of the stack, which CloudFormation does not show: rules about them are not checked.")
    found += name_mistakes(name, template) + node_mistakes(template, options.environment)
    found += issuer.mistakes(template["JwtIssuer"])
    if name and not found:
        notes += name_notes(name, template)
    if session:
        found += aws.mistakes(session, template, name, stack)
        try:
            notes += aws.role_note(session, template, name or "")
        except (BotoCoreError, ClientError):
            pass  # `mistakes` has said so.
    if burstable(template) and options.environment != "prod":
        notes.append(f"RedisNodeType={template['RedisNodeType']} is burstable: use cache.m7g.large or larger for users.")
    if stack and template["DeletionProtection"] == "false" and options.environment == "prod":
        notes.append(f"Stack {name} exists and its tables are not protected: deploy with DeletionProtection=true.")
    return found, notes, template


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="preflight", description="Checks a deployment before it begins.")
    parser.add_argument("--environment", default="dev", help="the environment of samconfig.toml (dev)")
    parser.add_argument("--region", help="the region; otherwise that of samconfig.toml or of the shell")
    parser.add_argument("--offline", action="store_true", help="check nothing in the account")
    parser.add_argument("--template", default="template.yaml", help=argparse.SUPPRESS)
    parser.add_argument("--samconfig", default="samconfig.toml", help=argparse.SUPPRESS)
    parser.add_argument("values", nargs="*", metavar="Name=Value", help="values of parameters, which override those of samconfig.toml")
    options = parser.parse_args(arguments)
    mistakes, notes, template = check(options)
    for sentence in mistakes:
        print(f"mistake: {sentence}")
    for sentence in notes:
        print(f"note: {sentence}")
    if template:
        print("\n".join(cost.shown(template)))
    print(f"preflight: {len(mistakes)} mistake{'s' if len(mistakes) > 1 else ''}" if mistakes else "preflight: no mistakes")
    sys.exit(1 if mistakes else 0)


if __name__ == "__main__":
    main()
