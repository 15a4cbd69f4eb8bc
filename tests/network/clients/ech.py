"""Sends a ClientHello with an Encrypted Client Hello, as Chromium and Bun do; succeeds when a ServerHello answers."""

import os
import socket
import ssl
import struct
import sys

HANDSHAKE, SERVER_HELLO = 22, 2


def block(size, content):
    return len(content).to_bytes(size, "big") + content


def with_ech(record):
    # The record's header, the message's header, version and random; then the session, the cipher suites, the compression.
    at = 5 + 4 + 2 + 32
    for size in (1, 2, 1):
        at += size + int.from_bytes(record[at:at + size], "big")
    outer = b"\0" + struct.pack(">HHB", 1, 1, 7) + block(2, os.urandom(32)) + block(2, os.urandom(144))
    extensions = record[at + 2:] + struct.pack(">H", 0xFE0D) + block(2, outer)
    message = b"\1" + block(3, record[9:at] + block(2, extensions))
    return record[:3] + block(2, message)


host, _, port = sys.argv[1].partition(":")
incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname=host)
try:
    client.do_handshake()
except ssl.SSLWantReadError:
    pass
with socket.create_connection((host, int(port)), timeout=10) as connection:
    connection.sendall(with_ech(outgoing.read()))
    answer = connection.recv(6)
if answer[:1] != bytes([HANDSHAKE]) or answer[5:6] != bytes([SERVER_HELLO]):
    sys.exit(f"no ServerHello, but {answer!r}")
# The line that shows the tests that a request arrived; here the connection is what is tried.
print("GET /x HTTP/1.1")
