"""moto's S3 on loopback with a user of its own, whose signatures are checked, and a door for tests to make buckets by.

Prints one line of JSON: port, accessKey, secretKey, and temporary {accessKey, secretKey, token} of an assumed role.
GET /peer/bucket?name=N&region=R makes a bucket.
"""

import json
import logging
import sys
import threading
import urllib.parse
import xml.etree.ElementTree as tree

import requests
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

ALLOW = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}],
}


class Front:
    def __init__(self):
        self.moto = DomainDispatcherApplication(create_backend_app)

    def __call__(self, environ, start_response):
        if environ["PATH_INFO"] != "/peer/bucket":
            return self.moto(environ, start_response)
        query = dict(urllib.parse.parse_qsl(environ["QUERY_STRING"]))
        backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        backend.create_bucket(query["name"], query.get("region", "us-east-1"))
        start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "0")])
        return [b""]


def call(base, service, version, **fields):
    """A call of a query API; its service is told by the scope of a signature that nobody checks yet."""
    scope = f"AWS4-HMAC-SHA256 Credential=x/20200101/us-east-1/{service}/aws4_request, SignedHeaders=host, Signature=x"
    answer = requests.post(base, data={"Version": version, **fields}, headers={"Authorization": scope}, timeout=60)
    answer.raise_for_status()
    values = {}
    for element in tree.fromstring(answer.content).iter():
        values[element.tag.rpartition("}")[2]] = element.text
    return values


def main():
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, Front(), threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}"
    iam = ("iam", "2010-05-08")
    call(base, *iam, Action="CreateUser", UserName="tests")
    key = call(base, *iam, Action="CreateAccessKey", UserName="tests")
    policy = json.dumps(ALLOW)
    call(base, *iam, Action="PutUserPolicy", UserName="tests", PolicyName="s3", PolicyDocument=policy)
    call(base, *iam, Action="CreateRole", RoleName="tests", AssumeRolePolicyDocument=json.dumps(TRUST))
    call(base, *iam, Action="PutRolePolicy", RoleName="tests", PolicyName="s3", PolicyDocument=policy)
    role = f"arn:aws:iam::{DEFAULT_ACCOUNT_ID}:role/tests"
    session = call(base, "sts", "2011-06-15", Action="AssumeRole", RoleArn=role, RoleSessionName="tests")
    # From here on a wrong signature is refused.
    requests.post(base + "/moto-api/reset-auth", data="0", timeout=60).raise_for_status()
    told = {
        "port": server.server_port,
        "accessKey": key["AccessKeyId"],
        "secretKey": key["SecretAccessKey"],
        "temporary": {
            "accessKey": session["AccessKeyId"],
            "secretKey": session["SecretAccessKey"],
            "token": session["SessionToken"],
        },
    }
    print(json.dumps(told), flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    sys.exit(main())
