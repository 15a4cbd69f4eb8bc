"""urllib and ssl as they come: `client.py system URL`, `client.py urllib URL CA [HOST]`,
`client.py ssl NAME PORT CA SNI|-`."""

import socket
import ssl
import sys
import urllib.request

kind, *words = sys.argv[1:]
if kind == "system":
    sys.stdout.write(urllib.request.urlopen(words[0], timeout=10).read().decode())
elif kind == "urllib":
    url, authority, *host = words
    request = urllib.request.Request(url, headers={"Host": host[0]} if host else {})
    context = ssl.create_default_context(cafile=authority)
    sys.stdout.write(urllib.request.urlopen(request, context=context, timeout=10).read().decode())
else:
    name, port, authority, server_name = words
    context = ssl.create_default_context(cafile=authority)
    if server_name == "-":
        context.check_hostname = False
    plain = socket.create_connection((name, int(port)), timeout=10)
    stream = context.wrap_socket(plain, server_hostname=None if server_name == "-" else server_name)
    stream.sendall(f"GET /x HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n".encode())
    answer = b""
    while b"GET /x HTTP/1.1\n" not in answer:
        more = stream.recv(4096)
        if not more:
            sys.exit("the connection ended")
        answer += more
    sys.stdout.write(answer.decode())
