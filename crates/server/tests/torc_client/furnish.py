"""Gives a server a workflow with one object of each kind, so that what tries ids at random finds something.

Usage: furnish.py URL TOKEN
"""

import sys

from session import Session, connect, m


def main():
    url, token = sys.argv[1:]
    session = Session(connect(url, token, "torc-service/v1"))
    workflow = session.make_workflow("furnished")
    own = {"workflow_id": workflow.id}
    file = session.files.create_file(m.FileModel(name="in", path="in.txt", **own))
    data = session.user_data.create_user_data(m.UserDataModel(name="config", data={"n": 1}, **own))
    session.requirements.create_resource_requirements(
        m.ResourceRequirementsModel(name="big", num_cpus=2, memory="4g", runtime="PT1H", num_gpus=0, num_nodes=1, **own)
    )
    session.handlers.create_failure_handler(
        m.FailureHandlerModel(name="again", rules='[{"exit_codes": [1], "max_retries": 2}]', **own)
    )
    session.schedulers.create_slurm_scheduler(
        m.SlurmSchedulerModel(name="s", account="a", nodes=1, walltime="04:00:00", **own)
    )
    session.allocations.create_scheduled_compute_node(
        m.ScheduledComputeNodesModel(
            scheduler_id=123, scheduler_config_id=1, scheduler_type="slurm", status="pending", **own
        )
    )
    session.events.create_event(m.EventModel(timestamp=0, data={"category": "mine"}, **own))
    first = session.make_job(workflow, "first", input_file_ids=[file.id], input_user_data_ids=[data.id])
    session.make_job(workflow, "second", depends_on_job_ids=[first.id])
    session.make_job(workflow, "third")
    session.workflows.initialize_jobs(workflow.id)
    node = session.make_node(workflow)
    [claimed] = session.workflows.claim_next_jobs(workflow.id, limit=1).jobs
    session.jobs.start_job(claimed.id, 1, node.id)
    session.complete(claimed, node, 1)


if __name__ == "__main__":
    main()
