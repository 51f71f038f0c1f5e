"""An AWS on a loopback port that returns what a test says, and an issuer with TLS. Both record nothing and need no network."""

import json
import re
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

# Services whose requests have the operation in method and path.
REST = ("apigateway", "lambda", "s3")
STACK = "arn:aws:cloudformation:eu-central-1:123456789012:stack/tidemark/1"


def xml(operation, body, space="https://aws.example/"):
    return f'<{operation}Response xmlns="{space}"><{operation}Result>{body}</{operation}Result></{operation}Response>'


def members(tag, items):
    return f"<{tag}>" + "".join(items) + f"</{tag}>"


class Answers:
    """The state of an account in which every check passes. A test changes fields."""

    def __init__(self):
        self.credentials = True
        self.role = None
        self.concurrency = (1000, 1000)
        self.stack = None  # status, parameters
        self.subnets = {"subnet-1": ("vpc-1", "eu-central-1a"), "subnet-2": ("vpc-1", "eu-central-1b")}
        self.nodes = {"cache.t4g.micro", "cache.t4g.small", "cache.m7g.large"}
        self.denied = set()

    def answer(self, service, operation, arguments):
        """Status and body of a response."""
        if not self.credentials or service in self.denied:
            code = "AccessDenied" if self.credentials else "InvalidClientTokenId"
            if service in ("apigateway", "lambda"):
                return 403, json.dumps({"message": code})
            return 403, f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>not allowed</Message></Error></ErrorResponse>"
        return getattr(self, f"on_{service}")(operation, arguments)

    def on_sts(self, operation, _):
        return 200, xml(operation, "<Account>123456789012</Account><Arn>arn:aws:iam::123456789012:user/a</Arn><UserId>A</UserId>")

    def on_apigateway(self, _, __):
        return 200, json.dumps({"cloudwatchRoleArn": self.role} if self.role else {})

    def on_lambda(self, _, __):
        most, unreserved = self.concurrency
        return 200, json.dumps({"AccountLimit": {"ConcurrentExecutions": most, "UnreservedConcurrentExecutions": unreserved}})

    def on_cloudformation(self, operation, arguments):
        if self.stack is None:
            message = f"Stack with id {arguments['StackName'][0]} does not exist"
            return 400, f"<ErrorResponse><Error><Type>Sender</Type><Code>ValidationError</Code><Message>{message}</Message></Error></ErrorResponse>"
        status, parameters = self.stack
        pairs = (f"<member><ParameterKey>{name}</ParameterKey><ParameterValue>{value}</ParameterValue></member>" for name, value in parameters.items())
        fields = f"<StackId>{STACK}</StackId><StackName>tidemark</StackName><CreationTime>2026-01-01T00:00:00Z</CreationTime>"
        stack = f"<member>{fields}<StackStatus>{status}</StackStatus>{members('Parameters', pairs)}</member>"
        return 200, xml(operation, members("Stacks", [stack]))

    def on_ec2(self, operation, arguments):
        asked = [values[0] for name, values in arguments.items() if name.startswith("SubnetId")]
        for name in asked:
            if name not in self.subnets:
                message = f"The subnet ID '{name}' does not exist"
                return 400, f"<Response><Errors><Error><Code>InvalidSubnetID.NotFound</Code><Message>{message}</Message></Error></Errors></Response>"
        items = (
            f"<item><subnetId>{name}</subnetId><vpcId>{self.subnets[name][0]}</vpcId><availabilityZone>{self.subnets[name][1]}</availabilityZone></item>"
            for name in asked
        )
        return 200, f"<{operation}Response>{members('subnetSet', items)}</{operation}Response>"

    def on_elasticache(self, operation, arguments):
        kind = arguments["CacheNodeType"][0]
        offers = [f"<ReservedCacheNodesOffering><CacheNodeType>{kind}</CacheNodeType></ReservedCacheNodesOffering>"] if kind in self.nodes else []
        return 200, xml(operation, members("ReservedCacheNodesOfferings", offers))


class Quiet(BaseHTTPRequestHandler):
    # Headers and body are two writes. Otherwise the second waits for 40 ms.
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def reply(self, status, body, kind="application/json"):
        data = body.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def served(handler, context=None):
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


class FakeAws:
    def __init__(self):
        self.answers = Answers()
        fake = self

        class Handler(Quiet):
            def do_GET(self):
                service = re.search(r"Credential=[^/]+/\d+/[^/]+/([^/]+)/aws4_request", self.headers["Authorization"])[1]
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                status, answer = fake.answers.answer(service, *self.asked(service, body))
                self.reply(status, answer, "application/json" if answer.startswith("{") else "text/xml")

            def asked(self, service, body):
                """The operation and its arguments in the protocol of the service."""
                if target := self.headers.get("X-Amz-Target"):
                    return target.rsplit(".", 1)[1], json.loads(body)
                if service in REST:
                    return f"{self.command} {self.path}", body
                arguments = parse_qs(body)
                return arguments["Action"][0], arguments

            do_POST = do_PUT = do_DELETE = do_GET

        self.server = served(Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()


RSA_KEY = {"kty": "RSA", "use": "sig", "kid": "1", "n": "AQAB", "e": "AQAB"}


class FakeIssuer:
    """`documents` are the JSON texts by path; others are 404."""

    def __init__(self, folder):
        self.certificate = Path(folder) / "issuer.pem"
        key = Path(folder) / "issuer.key"
        subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key, "-out", self.certificate, *subject]
        subprocess.run(command, check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        self.documents = {}
        fake = self

        class Handler(Quiet):
            def do_GET(self):
                text = fake.documents.get(self.path)
                self.reply(404 if text is None else 200, text or "{}")

        self.server = served(Handler, context)
        self.url = f"https://127.0.0.1:{self.server.server_port}/"
        self.reset()

    def reset(self):
        self.set("/.well-known/openid-configuration", {"issuer": self.url, "jwks_uri": f"{self.url}keys"})
        self.set("/keys", {"keys": [RSA_KEY]})

    def set(self, path, document):
        self.documents[path] = document if isinstance(document, str) else json.dumps(document)

    def close(self):
        self.server.shutdown()
        self.server.server_close()
