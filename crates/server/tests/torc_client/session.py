"""A session of Torc's own Python client against a server: every answer is checked.

Usage: session.py URL TOKEN PREFIX
"""

import sys
from datetime import datetime, timezone

from torc.openapi_client import (
    ApiClient,
    ComputeNodesApi,
    Configuration,
    EventsApi,
    FailureHandlersApi,
    FilesApi,
    JobsApi,
    ResourceRequirementsApi,
    ResultsApi,
    ScheduledComputeNodesApi,
    SlurmSchedulersApi,
    SystemApi,
    UserDataApi,
    WorkflowActionsApi,
    WorkflowsApi,
)
from torc.openapi_client import models as m
from torc.openapi_client.exceptions import ApiException


def connect(url, token, prefix):
    client = ApiClient(Configuration(host=f"{url}/{prefix}"))
    client.set_default_header("Authorization", f"Bearer {token}")
    return client


def refused(status, call, *args, **kwargs):
    """The call must fail with this status, and say why in the manner of the prefix."""
    try:
        call(*args, **kwargs)
    except ApiException as error:
        assert error.status == status, f"expected {status}, got {error.status}: {error.body}"
        why = '"detail"' if "/api/v1/" in error.body else '"message"'
        assert why in error.body, error.body
    else:
        raise AssertionError(f"{call.__name__} should have been refused with {status}")


def now():
    return datetime.now(timezone.utc).isoformat()


class Session:
    def __init__(self, client):
        self.system = SystemApi(client)
        self.workflows = WorkflowsApi(client)
        self.jobs = JobsApi(client)
        self.files = FilesApi(client)
        self.user_data = UserDataApi(client)
        self.requirements = ResourceRequirementsApi(client)
        self.handlers = FailureHandlersApi(client)
        self.schedulers = SlurmSchedulersApi(client)
        self.allocations = ScheduledComputeNodesApi(client)
        self.nodes = ComputeNodesApi(client)
        self.results = ResultsApi(client)
        self.events = EventsApi(client)
        self.actions = WorkflowActionsApi(client)

    # ---- objects ----

    def make_workflow(self, name):
        workflow = self.workflows.create_workflow(m.WorkflowModel(name=name, user="other", description="a test"))
        assert workflow.id and workflow.run_id == 1 and workflow.is_canceled is False
        assert workflow.user != "other", "the owner is the authenticated user"
        assert self.workflows.get_workflow(workflow.id).name == name
        assert self.workflows.is_workflow_uninitialized(workflow.id).is_uninitialized
        return workflow

    def make_job(self, workflow, name, **fields):
        return self.jobs.create_job(m.JobModel(workflow_id=workflow.id, name=name, command=f"echo {name}", **fields))

    def make_node(self, workflow, cpus=4):
        return self.nodes.create_compute_node(
            m.ComputeNodeModel(
                workflow_id=workflow.id,
                hostname="node1",
                pid=4711,
                start_time=now(),
                num_cpus=cpus,
                memory_gb=16.0,
                num_gpus=0,
                num_nodes=1,
                is_active=True,
                compute_node_type="local",
            )
        )

    def complete(self, job, node, run_id, status="completed", code=0, attempt=1):
        result = m.ResultModel(
            job_id=job.id,
            workflow_id=job.workflow_id,
            run_id=run_id,
            attempt_id=attempt,
            compute_node_id=node.id,
            return_code=code,
            exec_time_minutes=0.5,
            completion_time=now(),
            status=status,
            peak_memory_bytes=1 << 20,
        )
        return self.jobs.complete_job(job.id, status, run_id, result)

    # ---- scenes ----

    def says_what_it_is(self):
        assert self.system.ping().status == "ok"
        assert self.system.get_version().api_version

    def objects_come_and_go(self):
        workflow = self.make_workflow("objects")
        other = self.make_workflow("others")

        file = self.files.create_file(m.FileModel(workflow_id=workflow.id, name="in", path="in.txt", st_mtime=1.5))
        assert file.id and file.st_mtime == 1.5
        many = self.files.create_files(
            m.FilesModel(files=[m.FileModel(workflow_id=workflow.id, name=f"f{n}", path=f"f{n}") for n in range(3)])
        )
        assert [file.name for file in many.files] == ["f0", "f1", "f2"]
        page = self.files.list_files(workflow.id, limit=2, offset=1)
        assert (page.total_count, page.count, page.offset, page.has_more) == (4, 2, 1, True)
        assert self.files.list_files(workflow.id, sort_by="").total_count == 4
        assert page.max_limit == 100_000
        file.path = "other.txt"
        assert self.files.update_file(file.id, file).path == "other.txt"
        assert self.files.delete_file(many.files[0].id).name == "f0"
        refused(404, self.files.get_file, many.files[0].id)

        data = self.user_data.create_user_data(
            m.UserDataModel(workflow_id=workflow.id, name="config", data={"n": [1, None, "x"]}, is_ephemeral=False)
        )
        assert self.user_data.get_user_data(data.id).data == {"n": [1, None, "x"]}
        data.data = {"n": 2}
        assert self.user_data.update_user_data(data.id, data).data == {"n": 2}

        default = self.requirements.list_resource_requirements(workflow.id, name="default").items
        assert len(default) == 1 and (default[0].memory, default[0].runtime) == ("1m", "PT1M")
        big = self.requirements.create_resource_requirements(
            m.ResourceRequirementsModel(
                workflow_id=workflow.id, name="big", num_cpus=2, memory="4g", runtime="PT1H30M", num_gpus=0, num_nodes=1
            )
        )
        assert (big.num_cpus, big.memory, big.runtime) == (2, "4g", "PT1H30M")

        handler = self.handlers.create_failure_handler(
            m.FailureHandlerModel(workflow_id=workflow.id, name="again", rules='[{"exit_codes": [1], "max_retries": 2}]')
        )
        assert '"max_retries":2' in self.handlers.get_failure_handler(handler.id).rules.replace(" ", "")

        scheduler = self.schedulers.create_slurm_scheduler(
            m.SlurmSchedulerModel(workflow_id=workflow.id, name="s", account="a", nodes=1, walltime="04:00:00")
        )
        assert self.schedulers.get_slurm_scheduler(scheduler.id).walltime == "04:00:00"
        allocation = self.allocations.create_scheduled_compute_node(
            m.ScheduledComputeNodesModel(
                workflow_id=workflow.id,
                scheduler_id=123,
                scheduler_config_id=scheduler.id,
                scheduler_type="slurm",
                status="pending",
            )
        )
        assert self.workflows.get_workflow_status(workflow.id).pending_scheduled_nodes == 1
        allocation.status = "complete"
        assert self.allocations.update_scheduled_compute_node(allocation.id, allocation).status == "complete"

        first = self.make_job(workflow, "first", output_file_ids=[file.id], resource_requirements_id=big.id)
        second = self.make_job(workflow, "second", input_file_ids=[file.id], priority=5, env={"A": "1"})
        assert (first.status.value, first.attempt_id, second.priority) == ("uninitialized", 1, 5)
        assert first.cancel_on_blocking_job_failure is True
        assert self.jobs.get_job(second.id).depends_on_job_ids in ([first.id], [], None)
        assert second.resource_requirements_id == default[0].id
        refused(422, self.make_job, other, "alien", input_file_ids=[file.id])
        refused(422, self.make_job, other, "alien", depends_on_job_ids=[first.id])
        refused(422, self.make_job, workflow, "")
        refused(404, self.jobs.get_job, 10**15)
        second.command = "echo changed"
        assert self.jobs.update_job(second.id, second).command == "echo changed"
        bulk = self.jobs.create_jobs(
            m.JobsModel(jobs=[m.JobModel(workflow_id=workflow.id, name=f"b{n}", command="true") for n in range(5)])
        )
        assert len(bulk.jobs) == 5
        listed = self.jobs.list_jobs(workflow.id, name="b", limit=3, sort_by="name", reverse_sort=True)
        assert [job.name for job in listed.items] == ["b4", "b3", "b2"] and listed.total_count == 5
        assert self.workflows.list_job_ids(workflow.id).count == 7
        assert self.jobs.delete_job(bulk.jobs[0].id).name == "b0"

        action = self.actions.create_workflow_action(
            workflow.id,
            m.WorkflowActionModel(
                workflow_id=workflow.id,
                trigger_type="on_jobs_complete",
                action_type="run_commands",
                action_config={"commands": ["true"]},
                job_ids=[first.id],
            ),
        )
        assert action.required_triggers == 1 and action.action_config["commands"] == ["true"]
        assert [a.id for a in self.actions.get_workflow_actions(workflow.id)] == [action.id]

        event = self.events.create_event(
            m.EventModel(workflow_id=workflow.id, timestamp=0, data={"category": "mine", "n": 1})
        )
        assert event.timestamp > 10**12 and self.events.get_event(event.id).data == {"category": "mine", "n": 1}
        assert self.events.list_events(workflow.id, category="mine").total_count == 1

        workflow.description = "changed"
        assert self.workflows.update_workflow(workflow.id, workflow).description == "changed"
        names = [found.name for found in self.workflows.list_workflows(name="objects").items]
        assert names == ["objects"]
        for found in (workflow, other):
            assert self.workflows.delete_workflow(found.id).id == found.id
            refused(404, self.workflows.get_workflow, found.id)

    def jobs_run(self):
        workflow = self.make_workflow("diamond")
        top = self.make_job(workflow, "top")
        left = self.make_job(workflow, "left", depends_on_job_ids=[top.id])
        right = self.make_job(workflow, "right", depends_on_job_ids=[top.id])
        self.make_job(workflow, "bottom", depends_on_job_ids=[left.id, right.id])
        assert self.workflows.list_job_dependencies(workflow.id).total_count == 4

        begins = self.actions.create_workflow_action(
            workflow.id,
            m.WorkflowActionModel(
                workflow_id=workflow.id,
                trigger_type="on_workflow_start",
                action_type="run_commands",
                action_config={"commands": ["true"]},
            ),
        )
        assert self.actions.get_pending_actions(workflow.id) == []

        # As Torc's command line does before it initializes; the first run is still to come.
        self.workflows.reset_workflow_status(workflow.id)
        assert self.workflows.get_workflow(workflow.id).run_id == 1
        self.workflows.initialize_jobs(workflow.id)
        status = self.workflows.get_workflow_status(workflow.id)
        assert (status.total_jobs, status.jobs_by_status.ready, status.jobs_by_status.blocked) == (4, 1, 3)
        assert not self.workflows.is_workflow_complete(workflow.id).is_complete
        assert self.workflows.get_ready_job_requirements(workflow.id).num_jobs == 1

        node = self.make_node(workflow)
        assert [action.id for action in self.actions.get_pending_actions(workflow.id)] == [begins.id]
        claim = m.ClaimActionRequest(compute_node_id=node.id)
        assert self.actions.claim_action(workflow.id, begins.id, claim).success
        refused(409, self.actions.claim_action, workflow.id, begins.id, claim)
        assert self.actions.get_pending_actions(workflow.id) == []
        assert self.actions.get_workflow_actions(workflow.id)[0].executed_by == node.id

        claimed = self.workflows.claim_next_jobs(workflow.id, limit=10).jobs
        assert [job.name for job in claimed] == ["top"] and claimed[0].status.value == "pending"
        assert self.workflows.claim_next_jobs(workflow.id, limit=10).jobs == []
        running = self.jobs.start_job(top.id, 1, node.id)
        assert running.status.value == "running" and running.compute_node_id == node.id
        assert self.workflows.get_running_jobs(workflow.id).items[0].compute_node_name == "node1"
        assert self.complete(top, node, 1).status.value == "completed"
        refused(422, self.complete, top, node, 1)

        resources = m.ComputeNodesResources(num_cpus=2, memory_gb=1.0, num_gpus=0, num_nodes=1, time_limit="PT1H")
        claimed = self.workflows.claim_jobs_based_on_resources(workflow.id, 10, resources).jobs
        assert sorted(job.name for job in claimed) == ["left", "right"]
        for job in claimed:
            self.jobs.start_job(job.id, 1, node.id)
        entries = [
            m.JobCompletionEntry(
                job_id=job.id,
                run_id=1,
                status=status,
                result=m.ResultModel(
                    job_id=job.id,
                    workflow_id=workflow.id,
                    run_id=1,
                    compute_node_id=node.id,
                    return_code=code,
                    exec_time_minutes=0.1,
                    completion_time=now(),
                    status=status,
                ),
            )
            for job, status, code in zip(claimed, ["completed", "failed"], [0, 3])
        ]
        batch = self.workflows.batch_complete_jobs(workflow.id, m.BatchCompleteJobsRequest(completions=entries))
        assert sorted(batch.completed) == sorted(job.id for job in claimed) and batch.errors == []

        status = self.workflows.get_workflow_status(workflow.id)
        counts = status.jobs_by_status
        assert (counts.completed, counts.failed, counts.canceled) == (2, 1, 1), counts
        assert status.active_compute_nodes == 1, "only the runner is a compute node"
        assert self.workflows.is_workflow_complete(workflow.id).is_complete
        results = self.results.list_results(workflow.id)
        assert results.total_count == 3
        failed = self.results.list_results(workflow.id, status="failed").items
        assert [result.return_code for result in failed] == [3]
        assert self.results.get_result(failed[0].id).job_id == claimed[1].id

        # Once more, with what failed.
        assert self.workflows.reset_workflow_status(workflow.id) is None
        reset = self.workflows.reset_job_status(workflow.id, failed_only=True)
        assert reset.updated_count >= 1
        self.workflows.initialize_jobs(workflow.id, only_uninitialized=True)
        assert self.workflows.get_workflow(workflow.id).run_id == 2
        [again] = self.workflows.claim_next_jobs(workflow.id, limit=10).jobs
        assert again.id == claimed[1].id
        refused(422, self.complete, again, node, 1)
        self.jobs.start_job(again.id, 2, node.id)
        self.complete(again, node, 2, attempt=again.attempt_id)
        [bottom] = self.workflows.claim_next_jobs(workflow.id, limit=10).jobs
        self.jobs.start_job(bottom.id, 2, node.id)
        self.complete(bottom, node, 2, attempt=bottom.attempt_id)
        counts = self.workflows.get_workflow_status(workflow.id).jobs_by_status
        assert counts.completed == 4, counts
        assert self.results.list_results(workflow.id, all_runs=True).total_count == 5

        node.is_active = False
        assert self.nodes.update_compute_node(node.id, node).is_active is False
        self.workflows.delete_workflow(workflow.id)

    def runs_end_early(self):
        workflow = self.make_workflow("canceled")
        job = self.make_job(workflow, "long")
        self.make_job(workflow, "other")
        self.workflows.initialize_jobs(workflow.id)
        node = self.make_node(workflow)
        self.workflows.claim_next_jobs(workflow.id, limit=1)
        self.jobs.start_job(job.id, 1, node.id)
        self.workflows.cancel_workflow(workflow.id)
        complete = self.workflows.is_workflow_complete(workflow.id)
        assert complete.is_canceled and complete.is_complete
        assert self.jobs.get_job(job.id).status.value == "canceled"
        assert self.workflows.claim_next_jobs(workflow.id, limit=5).jobs == []
        node.is_active = False
        self.nodes.update_compute_node(node.id, node)
        self.workflows.delete_workflow(workflow.id)

    def a_job_is_retried(self):
        workflow = self.make_workflow("retried")
        job = self.make_job(workflow, "shaky")
        self.workflows.initialize_jobs(workflow.id)
        node = self.make_node(workflow)
        self.workflows.claim_next_jobs(workflow.id, limit=1)
        self.jobs.start_job(job.id, 1, node.id)
        again = self.jobs.retry_job(job.id, 1, max_retries=2)
        assert (again.status.value, again.attempt_id) == ("ready", 2)
        [claimed] = self.workflows.claim_next_jobs(workflow.id, limit=1).jobs
        assert claimed.compute_node_id is None, "a claim names no compute node"
        self.jobs.start_job(claimed.id, 1, node.id)
        refused(422, self.jobs.retry_job, job.id, 1, max_retries=2)
        self.complete(job, node, 1, attempt=2)
        [last] = self.results.list_results(workflow.id).items
        assert (last.attempt_id, last.status.value) == (2, "completed"), "the last attempt speaks for the job"
        assert self.results.list_results(workflow.id, return_code=1).total_count == 0
        every = self.results.list_results(workflow.id, all_runs=True).items
        assert [result.attempt_id for result in every] == [1, 2]
        node.is_active = False
        self.nodes.update_compute_node(node.id, node)
        self.workflows.delete_workflow(workflow.id)


def main():
    session = Session(connect(*sys.argv[1:]))
    for scene in (
        session.says_what_it_is,
        session.objects_come_and_go,
        session.jobs_run,
        session.runs_end_early,
        session.a_job_is_retried,
    ):
        scene()
        print(f"{scene.__name__}: as Torc's client expects")


if __name__ == "__main__":
    main()
