"""An agent with the hook of kiji-safeguard 0.3.0: starts the server that its words name and lists its tools."""

import asyncio
import os
import sys

import kiji_safeguard.autosign  # noqa: F401
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main():
    server = StdioServerParameters(command=sys.argv[1], args=sys.argv[2:], env=dict(os.environ))
    async with stdio_client(server) as (reader, writer):
        async with ClientSession(reader, writer) as session:
            await session.initialize()
            tools = await session.list_tools()
            print("listed", ",".join(tool.description for tool in tools.tools))


asyncio.run(main())
