"""Verifies a receipt with in-toto's packages: RECEIPT PUBLIC_KEY. Prints its predicate type."""

import base64
import json
import sys

from google.protobuf import json_format
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey

with open(sys.argv[1], encoding="utf-8") as file:
    written = json.load(file)
with open(sys.argv[2], encoding="utf-8") as file:
    public = base64.b64decode(file.read().split()[1])[-32:]
key = SSlibKey(written["signatures"][0]["keyid"], "ed25519", "ed25519", {"public": public.hex()})
envelope = Envelope.from_dict(written)
envelope.verify([key], 1)
statement = json_format.ParseDict(json.loads(envelope.payload), statement_pb2.Statement())
Statement.copy_from_pb(statement).validate()
print(statement.predicate_type)
