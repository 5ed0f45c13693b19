"""The official MCP SDK looks at a request that is held, and releases it without the site where it failed.

    requests.py stdio WINDLASS REQUEST SITE [ARGUMENT …]
    requests.py http URL TOKEN REQUEST SITE

Lists requests, reads what went wrong, is refused without confirm, and then does it. Prints what it was told as JSON.
"""

import asyncio
import json
import sys

from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client


def transport(arguments):
    """The way to the server, and what is left of the arguments."""
    how, first, *rest = arguments
    if how == "stdio":
        name, site, *more = rest
        return StdioServerParameters(command=first, args=["mcp", *more]), name, site
    token, name, site = rest
    client = create_mcp_http_client(headers={"Authorization": f"Bearer {token}"})
    return streamable_http_client(f"{first}/mcp", http_client=client), name, site


async def main(arguments):
    way, name, site = transport(arguments)
    async with Client(way) as client:

        async def call(tool, **given):
            result = await client.call_tool(tool, given)
            assert not result.is_error, (tool, result.content)
            return result.structured_content

        async def refused(tool, **given):
            try:
                result = await client.call_tool(tool, given)
                assert result.is_error, (tool, result.content)
                return result.content[0].text
            except MCPError as error:
                return str(error)

        told = {
            "tools": [tool.name for tool in (await client.list_tools()).tools],
            "held": await call("list_requests", status="held"),
            "completed": await call("list_requests", status="completed"),
            "request": await call("get_request", request_name=name),
            "errors": await call("request_errors", request_name=name),
            "unknown": await refused("get_request", request_name="-none"),
            "unmeant": await refused("release_request", request_name=name, reason="it is mended"),
        }
        if "release_request" in told["tools"]:
            given = {"request_name": name, "reason": "not there", "site_bans": [site], "confirm": True}
            told["wrong"] = await refused("release_request", **{**given, "site_bans": ["T9_None"]})
            told["released"] = await call("release_request", **given)
        print(json.dumps(told))


asyncio.run(main(sys.argv[1:]))
