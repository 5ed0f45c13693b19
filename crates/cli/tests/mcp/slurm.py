"""The official MCP SDK asks about allocations of Slurm.

    slurm.py SPEC stdio WINDLASS WORKFLOW [ARGUMENT …]
    slurm.py SPEC http URL TOKEN WORKFLOW

Reads what became of the allocations of the workflow, plans those of the spec in the file, makes a workflow of it for Slurm if it
may, and sees what is refused. Prints what it saw as JSON.
"""

import asyncio
import json
import pathlib
import sys

from mcp import Client
from way import transport


async def main(spec, arguments):
    way, workflow = transport(arguments)
    spec = pathlib.Path(spec).read_text()
    async with Client(way) as client:

        async def call(name, **given):
            result = await client.call_tool(name, given)
            assert not result.is_error, (name, result.content)
            return result.structured_content

        async def refused(name, **given):
            result = await client.call_tool(name, given)
            assert result.is_error, (name, result.structured_content)
            return result.content[0].text

        huge = """
            name: huge
            resource_requirements: [{name: much, num_cpus: 1, memory: 9t}]
            jobs: [{name: a, command: x, resource_requirements: much}]
        """
        tools = [tool.name for tool in (await client.list_tools()).tools]
        made = {}
        if "create_workflow" in tools:
            slurm = {"workflow_type": "slurm", "spec_json": spec}
            made = {
                "validated": await call("create_workflow", action="validate", account="lab", **slurm),
                "made": await call("create_workflow", action="create_workflow", account="lab", **slurm),
                "unfit": await refused(
                    "create_workflow", action="create_workflow", account="lab", workflow_type="slurm", spec_json=huge
                ),
                "free": await refused("create_workflow", action="create_workflow", **slurm),
                "local": await refused("create_workflow", action="validate", spec_json=spec, account="lab"),
            }
        print(json.dumps({
            "tools": tools,
            **made,
            "sacct": await call("get_slurm_sacct", workflow_id=workflow),
            "plan": await call("plan_allocations", spec_json=spec, account="lab"),
            "offline": await call("plan_allocations", spec_json=spec, account="lab", skip_test_only=True),
            "huge": await refused("plan_allocations", spec_json=huge, account="lab"),
            "mistaken": await refused("plan_allocations", spec_json="jobs: 1", account="lab"),
            "sly": await refused("plan_allocations", spec_json=spec, account="lab --wrap=id"),
        }))


asyncio.run(main(sys.argv[1], sys.argv[2:]))
