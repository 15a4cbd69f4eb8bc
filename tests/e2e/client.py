"""The official Python client, 1.x or 2.x: connects to the server that the task names, asks everything the task
says, and prints what it saw as one JSON document."""

import asyncio
import contextlib
import json
import os
import sys

import mcp
from mcp import types

from mcp.client import sse, streamable_http

try:
    from mcp import Client
except ImportError:
    Client = None

TASK = json.load(open(sys.argv[1], encoding="utf-8"))
ASKED = []


async def sample(_context, params):
    ASKED.append({"method": "sampling/createMessage", "params": plain(params)})
    text = types.TextContent(type="text", text="sampled")
    return types.CreateMessageResult(role="assistant", content=text, model="scripted")


async def elicit(_context, params):
    ASKED.append({"method": "elicitation/create", "params": plain(params)})
    return types.ElicitResult(action="decline")


async def roots(_context):
    ASKED.append({"method": "roots/list"})
    return types.ListRootsResult(roots=[types.Root(uri="file:///nowhere", name="nowhere")])


def plain(value):
    dumped = value.model_dump(mode="json", by_alias=True, exclude_unset=True)
    # A token of the client's own counts requests, which depends on timing.
    (dumped.get("_meta") or {}).pop("progressToken", None)
    return dumped


async def attempt(question):
    try:
        return plain(await question)
    except Exception as error:  # Whatever the client raises is what its user sees.
        return {"error": type(error).__name__, "message": str(error)}


@contextlib.asynccontextmanager
async def connected(parameters):
    callbacks = {"sampling_callback": sample, "elicitation_callback": elicit, "list_roots_callback": roots}
    if Client is not None:
        if TASK.get("transport") == "sse":
            parameters = sse.sse_client(TASK["url"])
        elif TASK.get("url"):
            parameters = TASK["url"]
        async with Client(parameters, mode=TASK.get("mode", "auto"), **callbacks) as client:
            session = client.session
            yield session, {
                "protocol": session.protocol_version,
                "server": plain(session.server_info),
                "capabilities": plain(session.server_capabilities),
                "instructions": session.instructions,
            }
    else:
        if TASK.get("transport") == "sse":
            transport = sse.sse_client(TASK["url"])
        elif TASK.get("url"):
            transport = streamable_http.streamable_http_client(TASK["url"])
        else:
            transport = mcp.stdio_client(parameters)
        async with transport as (read, write, *_):
            async with mcp.ClientSession(read, write, **callbacks) as session:
                yield session, plain(await session.initialize())


async def main():
    # As an agent does it: where the server is stands in a file.
    server = json.load(open(TASK["config"], encoding="utf-8"))["mcpServers"][TASK["server"]] if "config" in TASK else TASK
    environment = {**os.environ, **(server.get("env") or {})}
    parameters = None
    if "url" not in TASK:
        parameters = mcp.StdioServerParameters(command=server["command"], args=server.get("args", []), env=environment)
    async with connected(parameters) as (session, server):
        # Servers add tools after they know what the client can do.
        await asyncio.sleep(0.3)
        seen = {"server": server, "calls": [], "asked": ASKED}
        seen["lists"] = {
            "tools": await attempt(session.list_tools()),
            "prompts": await attempt(session.list_prompts()),
            "resources": await attempt(session.list_resources()),
            "templates": await attempt(session.list_resource_templates()),
        }

        async def call(name, arguments):
            progress = []

            async def step(done, total, message, progress=progress):
                progress.append([done, total, message])

            callback = step if name in TASK.get("progress", []) else None
            result = await attempt(session.call_tool(name, arguments, progress_callback=callback))
            return {"name": name, "result": result, "progress": progress}

        for name, arguments in TASK["calls"]:
            seen["calls"].append(await call(name, arguments))
        if "later" in TASK:
            # Who lists once more hears what a server says the second time.
            seen["again"] = await attempt(session.list_tools())
            seen["later"] = [await call(name, arguments) for name, arguments in TASK["later"]]
        for name, arguments in TASK.get("prompts", []):
            seen["calls"].append({"name": name, "result": await attempt(session.get_prompt(name, arguments))})
        for uri in TASK.get("resources", []):
            seen["calls"].append({"uri": uri, "result": await attempt(session.read_resource(uri))})
    print(json.dumps(seen))


asyncio.run(main())
