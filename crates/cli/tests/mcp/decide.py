"""The official MCP SDK decides on two failures that wait for it.

    decide.py WINDLASS WORKFLOW

Reads the failures; the one that ran out of memory is tried again with more, the other one fails. Prints what it was told
as JSON.
"""

import asyncio
import json
import sys

from mcp import Client, StdioServerParameters


def verdict(job):
    """What this agent thinks of a failure."""
    if job["out_of_memory"]:
        return {"action": "retry", "memory": "500m", "reason": "it needs more room", "confidence": 0.9}
    last = job["stderr_tail"].splitlines()[-1]
    return {"action": "fail", "reason": "it happens each time", "confidence": 1.0, "evidence": [last]}


async def main(windlass, workflow):
    server = StdioServerParameters(command=windlass, args=["mcp", "--allow-write"])
    async with Client(server) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        listed = (await client.call_tool("list_pending_failed_jobs", {"workflow_id": workflow})).structured_content
        decided = [{"job_id": job["job_id"], **verdict(job)} for job in listed["jobs"]]
        given = {"workflow_id": workflow, "classifications": decided}
        would = await client.call_tool("classify_and_resolve_failures", {**given, "dry_run": True})
        told = await client.call_tool("classify_and_resolve_failures", {**given, "confirm": True})
        print(json.dumps({
            "tools": tools,
            "names": [job["name"] for job in listed["jobs"]],
            "would": would.structured_content,
            "told": told.structured_content,
        }))


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
