//! The allocation reconciler, with a working controller.

use crate::kit::{Fixture, ask, request};
use crate::support::{Cluster, eventually};
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::Duration;
use windlass_scheduler::service::{WorkerCaller, WorkerOwner};
use windlass_slurm::slurm_client::CallBudgetOptions;
use windlass_store::fault_injection::{DatabaseOperation, InjectedOutcome};
use windlass_store::model::JobFilter;
use windlass_types::slurm::{AllocationRequest, AllocationState as A, SlurmJobNode, SlurmJobState};
use windlass_types::worker_protocol::{
    AcceptedJobOwners, ExchangeReply, RegistrationReply, WorkerExchange, WorkerRegistration,
};
use windlass_types::{AllocationId, Bytes, Capacity, JobStatus, Resources, SystemClock, WorkflowId};

#[test]
fn action_submits_once_and_its_allocation_ends() {
    let fixture = Fixture::new(Cluster::shared(), "action");
    let reconciler = fixture.reconciler("exit 0");
    let workflow = fixture.workflow(3);
    eventually("all three have ended", || {
        let rows = fixture.rows(workflow);
        rows.len() == 3 && rows.iter().all(|row| row.state == A::Ended)
    });
    for row in fixture.rows(workflow) {
        assert_eq!(
            (row.end, row.exit_code.as_deref(), row.submissions),
            (Some(SlurmJobState::Completed), Some("0:0"), 1)
        );
        assert!(row.started_at.is_some() && row.ended_at.is_some() && row.nodes.is_some(), "{row:?}");
        assert!(fixture.work.path().join(format!("slurm_output_wf{workflow}_sl{}.o", row.id)).exists());
    }
    // A later reconciler requests nothing again.
    reconciler.stop();
    let again = fixture.reconciler("exit 0");
    eventually("it has reconciled", || again.status().passes > 0);
    assert_eq!(fixture.rows(workflow).len(), 3);
    assert_eq!(
        again.total_statistics().values().map(|tally| tally.calls).sum::<u64>(),
        0,
        "nothing is open, so Slurm is not called"
    );
}

#[test]
fn persistent_action_submits_once() {
    let fixture = Fixture::new(Cluster::shared(), "persistent");
    let reconciler = fixture.reconciler("exit 0");
    let workflow = fixture.persistent(2);
    eventually("both have ended", || {
        let rows = fixture.rows(workflow);
        rows.len() == 2 && rows.iter().all(|row| row.state == A::Ended)
    });
    for _ in 0..2 {
        fixture.look(&reconciler);
    }
    assert_eq!(fixture.rows(workflow).len(), 2);
}

#[test]
fn unwanted_allocation_is_canceled() {
    let fixture = Fixture::new(Cluster::shared(), "unwanted");
    let _reconciler = fixture.reconciler("exec sleep 600");
    let workflow = fixture.workflow(0);
    let (runs, waits) = (fixture.want(workflow, request()), {
        let options = [("hold".to_owned(), String::new())].into();
        fixture.want(workflow, AllocationRequest { options, ..request() })
    });
    fixture.await_state(runs, A::Running);
    fixture.await_row(waits, "is held", |row| row.reason.as_deref() == Some("JobHeldUser"));
    fixture.unwanted(runs, "calls of ann have ended");
    let row = fixture.await_state(runs, A::Ended);
    assert_eq!(
        (row.end, row.unwanted.as_deref()),
        (Some(SlurmJobState::Cancelled), Some("calls of ann have ended"))
    );
    // The workflow is canceled: pending allocations are canceled, with the reason.
    ask(|reply| fixture.service.cancel_workflow(workflow, "me", reply)).unwrap();
    let row = fixture.await_state(waits, A::Ended);
    assert_eq!(row.end, Some(SlurmJobState::Cancelled));
    assert_eq!(row.unwanted, Some(format!("workflow {workflow} was canceled")));
}

#[test]
fn unwanted_allocation_is_canceled_within_the_budget() {
    let fixture = Fixture::new(Cluster::shared(), "budget");
    // So few calls that waiting allocations use every one.
    let budget = CallBudgetOptions { per_minute: 60, burst: 2, ..CallBudgetOptions::default() };
    let _reconciler = fixture.reconciler_with_budget("exec sleep 600", budget);
    let workflow = fixture.workflow(0);
    let held = || {
        let options = [("hold".to_owned(), String::new())].into();
        fixture.want(workflow, AllocationRequest { options, ..request() })
    };
    let first = held();
    fixture.await_row(first, "has a number", |row| row.job_id.is_some());
    let others: Vec<AllocationId> = (0..12).map(|_| held()).collect();
    fixture.unwanted(first, "calls of ann have ended");
    let row = fixture.await_state(first, A::Ended);
    assert_eq!(
        (row.end, row.unwanted.as_deref()),
        (Some(SlurmJobState::Cancelled), Some("calls of ann have ended"))
    );
    for other in others {
        fixture.await_row(other, "has a number", |row| row.job_id.is_some());
    }
}

#[test]
fn pending_allocation_that_fits_no_job_is_canceled() {
    let fixture = Fixture::new(Cluster::shared(), "unfit");
    let _reconciler = fixture.reconciler("exec sleep 600");
    let workflow = fixture.asking(Resources { memory: Bytes(200 << 20), ..Resources::DEFAULT });
    let held = |mem: &str| {
        let options = [("hold".to_owned(), String::new())].into();
        fixture.want(workflow, AllocationRequest { options, mem: Some(mem.to_owned()), ..request() })
    };
    let (small, large) = (held("100M"), held("300M"));
    let row = fixture.await_row(small, "has ended", |row| row.state.is_over());
    let why = row.unwanted.or(row.reason).unwrap();
    assert!(why.contains("remaining jobs fits into it"), "{why}");
    let row = fixture.await_state(large, A::Pending);
    assert_eq!(row.unwanted, None);
}

#[test]
fn refused_allocation_has_the_text_of_slurm() {
    let fixture = Fixture::new(Cluster::shared(), "refused");
    let _reconciler = fixture.reconciler("exit 0");
    let workflow = fixture.workflow(0);
    let partition = Some("nope".to_owned());
    let no = fixture.want(workflow, AllocationRequest { partition, ..request() });
    let extra = Some("--array=1-3".to_owned());
    let odd = fixture.want(workflow, AllocationRequest { extra, ..request() });
    let row = fixture.await_state(no, A::Refused);
    assert_eq!(
        row.reason.as_deref(),
        Some("invalid partition specified: nope; Invalid partition name specified")
    );
    let row = fixture.await_state(odd, A::Refused);
    assert!(row.reason.unwrap().starts_with("`--array` in `extra`"));
    assert_eq!(row.submissions, 0);
}

#[test]
fn crash_after_sbatch_does_not_submit_twice() {
    let fixture = Fixture::new(Cluster::shared(), "crash");
    // The database fails from when Slurm has accepted the job.
    let tools = fixture.work.path().join("tools");
    std::fs::create_dir(&tools).unwrap();
    for tool in ["squeue", "sacct", "scancel", "scontrol"] {
        symlink(format!("/usr/bin/{tool}"), tools.join(tool)).unwrap();
    }
    let taken = fixture.work.path().join("taken");
    fixture.script("tools/sbatch", &format!("/usr/bin/sbatch \"$@\" && touch {}", taken.display()));
    let flag = taken.clone();
    let door = Arc::new(move |asked| match asked {
        DatabaseOperation::Write if flag.exists() => InjectedOutcome::Failed,
        _ => InjectedOutcome::Done,
    });
    let workflow = fixture.workflow(0);
    let dies = fixture.reconciler_with_faults("exec sleep 600", door, &tools);
    let id = fixture.want(workflow, request());
    let tag = fixture.row(id).tag;
    eventually("Slurm has it", || taken.exists() && !fixture.cluster.jobs_tagged(&tag).is_empty());
    eventually("the reconciler has seen the failure", || dies.status().problem.is_some());
    assert_eq!((fixture.row(id).state, fixture.row(id).job_id), (A::Submitting, None));
    dies.stop();
    std::fs::remove_file(&taken).unwrap();
    let _reconciler = fixture.reconciler("exec sleep 600");
    let row = fixture.await_state(id, A::Running);
    assert_eq!(fixture.cluster.jobs_tagged(&tag), [row.job_id.unwrap()]);
    assert_eq!(row.submissions, 1);
}

#[test]
fn second_job_of_an_allocation_is_canceled() {
    let fixture = Fixture::new(Cluster::shared(), "second");
    let _reconciler = fixture.reconciler("exec sleep 600");
    let workflow = fixture.workflow(0);
    let id = fixture.want(workflow, request());
    let row = fixture.await_state(id, A::Running);
    let comment = format!("--comment={}", row.tag);
    let second = fixture.cluster.submit(&[&comment, "--mem=100M", "--time=5"], "sleep 300");
    fixture.cluster.await_state(second, &["CANCELLED"]);
    assert_eq!(fixture.row(id).state, A::Running);
    assert!(fixture.job_store.slurm_calls(SystemClock.now()).is_ok());
}

#[test]
fn workers_are_notified_of_a_later_end() {
    let fixture = Fixture::new(Cluster::shared(), "later");
    let _reconciler = fixture.reconciler("exec sleep 600");
    let workflow = fixture.workflow(0);
    let id = fixture.want(workflow, request());
    let row = fixture.await_row(id, "has an end", |row| row.ends_at.is_some());
    let (job, was) = (row.job_id.unwrap(), row.ends_at.unwrap());
    let mut worker = AllocationWorker::of(&fixture, workflow, id, job);
    worker.ends_in();
    fixture.cluster.slurm("scontrol", &["update", &format!("JobId={job}"), "TimeLimit=02:00:00"]);
    let mut told = None;
    eventually("the worker gets the end date", || {
        told = worker.ends_in().or(told);
        told.is_some()
    });
    assert!(told.unwrap() > Duration::from_mins(90), "{told:?}");
    assert!(fixture.row(id).ends_at.unwrap() > was);
}

#[test]
fn steps_of_a_lost_worker_end_before_reassignment() {
    let fixture = Fixture::with_lease(Cluster::shared(), "steps", Duration::from_secs(8));
    // The step of a killed worker: no process cancels it.
    let step = "srun --nodes=1 --ntasks=1 --exact --mem=50M --job-name=job_wf1_j1_r1_a1";
    let _reconciler =
        fixture.reconciler(&format!("{step} sh -c 'touch begun; exec sleep 600' &\nexec sleep 600"));
    let workflow = fixture.workflow(0);
    let id = fixture.want(workflow, AllocationRequest { nodes: 2, ..request() });
    let row = fixture.await_state(id, A::Running);
    let mut worker = AllocationWorker::of(&fixture, workflow, id, row.job_id.unwrap());
    let mut held = Vec::new();
    eventually("it has the job, and the step is running", || {
        held.extend(worker.exchange().assignments);
        !held.is_empty() && fixture.work.path().join("begun").exists()
    });
    assert_eq!(held[0].key.log_stem(), "job_wf1_j1_r1_a1");
    let steps = || fixture.cluster.slurm("squeue", &["-s", "-h", "--me", "-o", "%i|%j"]);
    let own = format!("{}.", row.job_id.unwrap());
    let is_there =
        || steps().lines().any(|line| line.starts_with(&own) && line.ends_with("|job_wf1_j1_r1_a1"));
    assert!(is_there(), "{}", steps());
    // From here on the worker makes no contact.
    eventually("its job may be reassigned", || {
        let jobs = fixture.job_store.jobs(workflow, &JobFilter::default()).unwrap();
        jobs[0].status == JobStatus::Ready
    });
    assert!(!is_there(), "{}", steps());
    assert_eq!(fixture.row(id).state, A::Running, "the allocation continues");
}

/// A worker in an allocation, as the service sees it.
struct AllocationWorker<'a> {
    fixture: &'a Fixture,
    welcome: RegistrationReply,
    number: u64,
}

impl<'a> AllocationWorker<'a> {
    fn of(fixture: &'a Fixture, workflow: WorkflowId, id: AllocationId, job_id: u64) -> Self {
        let who = WorkerRegistration {
            host: "n1".into(),
            boot_id: "b".into(),
            pid: 1,
            pid_start_ticks: 1,
            capacity: Capacity { cpus: 1, memory: Bytes(1 << 30), gpus: 0, nodes: 1, max_jobs: None },
            version: "test".into(),
            jobs_of: AcceptedJobOwners::Own,
            labels: Vec::new(),
            site: "local".into(),
            workflow: Some(workflow),
            before: None,
            allocation: Some(id.0),
            slurm: Some(SlurmJobNode { job_id, restarts: 0, node: "n1".into() }),
        };
        let token_owner =
            WorkerOwner { user: "me".into(), sees_all: false, may_work_for: Arc::new(|_| true) };
        let welcome = ask(|reply| fixture.service.register_worker(who, token_owner, reply)).unwrap();
        Self { fixture, welcome, number: 0 }
    }

    /// The end date in an exchange, if any.
    fn ends_in(&mut self) -> Option<Duration> {
        self.exchange().ends_in
    }

    fn exchange(&mut self) -> ExchangeReply {
        self.number += 1;
        let exchange = WorkerExchange {
            worker: self.welcome.worker,
            secret: self.welcome.secret.clone(),
            number: self.number,
            reports: Vec::new(),
            actions: Vec::new(),
            wait: Duration::ZERO,
            time_left: None,
            draining: false,
            leaving: false,
        };
        let speaker = WorkerCaller::User("me".into());
        ask(|reply| self.fixture.service.exchange(exchange, speaker, reply)).unwrap()
    }
}
