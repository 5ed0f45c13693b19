"""The way to an MCP server, as the scripts beside this one are told it.

    stdio WINDLASS WORKFLOW [ARGUMENT …]
    http URL TOKEN WORKFLOW
"""

import os

from mcp import StdioServerParameters
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client


def transport(arguments):
    """The way to the server, and the workflow."""
    how, *rest = arguments
    if how == "stdio":
        windlass, workflow, *more = rest
        # All of it: where the cluster is stands there.
        return StdioServerParameters(command=windlass, args=["mcp", *more], env=dict(os.environ)), int(workflow)
    url, token, workflow = rest
    client = create_mcp_http_client(headers={"Authorization": f"Bearer {token}"})
    return streamable_http_client(f"{url}/mcp", http_client=client), int(workflow)
