"""A session of the official MCP SDK with `windlass mcp` or with /mcp of a server.

    session.py stdio WINDLASS WORKFLOW [ARGUMENT …]
    session.py http URL TOKEN WORKFLOW

The workflow has one job that failed and says why on stderr. Lists tools, resources and prompts, reads the failure and
its log, and sees what is refused. Prints what it saw as JSON.
"""

import asyncio
import json
import sys

from mcp import Client, MCPError
from way import transport


async def main(arguments):
    way, workflow = transport(arguments)
    async with Client(way) as client:

        async def call(name, **given):
            result = await client.call_tool(name, given)
            assert not result.is_error, (name, result.content)
            return result.structured_content

        tools = [tool.name for tool in (await client.list_tools()).tools]
        failed = await call("list_failed_jobs", workflow_id=workflow)
        job = failed["groups"][0]["jobs"][0]
        log = await call("get_job_logs", workflow_id=workflow, job_id=job["job_id"], log_type="stderr")
        why = await call("explain_job", job_id=job["job_id"])
        uri = f"windlass://logs/{workflow}/{job['job_id']}/{job['run_id']}/{job['attempt_id']}/stderr"
        resource = await client.read_resource(uri)
        guide = await client.read_resource("windlass://docs/mcp")
        prompt = await client.get_prompt("triage", {"workflow_id": str(workflow)})
        nothing = await client.call_tool("get_workflow_status", {"workflow_id": 999999})
        assert nothing.is_error
        try:
            refusal = await client.call_tool("cancel_workflow", {"workflow_id": workflow})
            refusal = refusal.content[0].text
        except MCPError as error:
            refusal = str(error)
        print(json.dumps({
            "tools": tools,
            "resources": len((await client.list_resources()).resources),
            "prompts": [prompt.name for prompt in (await client.list_prompts()).prompts],
            "status": await call("get_workflow_status", workflow_id=workflow),
            "job": job,
            "log": log,
            "why": why,
            "resource": resource.contents[0].text,
            "guide": guide.contents[0].text.splitlines()[0],
            "prompt": prompt.messages[0].content.text,
            "nothing": nothing.content[0].text,
            "refusal": refusal,
        }))


asyncio.run(main(sys.argv[1:]))
