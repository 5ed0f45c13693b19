//! Measures the store: creating large workflows, loading them, querying their status, and batches of claims and
//! ends.
//!
//! `cargo run --release -p windlass-store --example commits [JOBS] [DIRECTORY]`
#![expect(clippy::print_stdout, reason = "a program that prints figures")]

use std::error::Error;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use windlass_core::change::{AttemptResult, WorkflowChange};
use windlass_core::dependency_edges::{DependencyEdges, DependencyEdgesBuilder};
use windlass_store::model::{InMemoryJobSource, JobFilter, NewJob, NewWorker, NewWorkflow};
use windlass_store::sqlite::{OpenMode, SqliteStore};
use windlass_store::{ChangeBatch, Store, WorkerStore as _};
use windlass_types::worker_messages::{AttemptKey, AttemptUsage, ProcessExit};
use windlass_types::{
    Attempt, Bytes, Capacity, JobDefinition, JobId, JobStatus, RunId, SystemClock, Timestamp, WorkerId,
    WorkflowId,
};

const RUN: RunId = RunId(1);

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let jobs: u32 = args.next().map_or(Ok(100_000), |text| text.parse())?;
    let base = args.next().unwrap_or_else(|| std::env::temp_dir().to_string_lossy().into_owned());
    let directory = tempfile::tempdir_in(base)?;
    let db = directory.path().join("windlass.db");

    let store = timed("make the database", || SqliteStore::create(&db))?.store;
    let workflow =
        timed(&format!("create {jobs} jobs"), || create(&store, jobs, &DependencyEdges::default()))?;
    let chained = chain(jobs);
    timed(&format!("create {jobs} jobs, each behind one other"), || create(&store, jobs, &chained))?;
    let shuffled =
        timed(&format!("create {jobs} jobs, names in no order"), || create_shuffled(&store, jobs))?;
    println!("  peak memory so far: {}", peak_memory());
    drop(store);
    println!("  database: {}", Bytes(db.metadata()?.len()));

    timed("open it and ask for the status of all", || -> Result<_, windlass_store::StoreError> {
        SqliteStore::open(&db, OpenMode::ReadOnly)?.store.workflows()
    })?;
    let store = timed("open it for writing", || SqliteStore::open(&db, OpenMode::ReadWrite))?.store;
    let loaded = timed("load all jobs", || store.load_jobs(workflow))?;
    let filter = JobFilter { status: vec![JobStatus::Failed], ..JobFilter::default() };
    timed("list failed jobs", || store.jobs(workflow, &filter))?;
    commits(&store, workflow, &loaded.ids, 20)?;
    commits(&store, shuffled, &store.load_jobs(shuffled)?.ids, 1)?;
    println!("  log: {}", Bytes(log_length(&db)));
    timed("list failed jobs", || store.jobs(workflow, &filter))?;
    timed("close", || drop(store));
    println!("  peak memory: {}", peak_memory());
    Ok(())
}

/// Claims and ends jobs in batches of `size`; one batch waits while the other is written, as in the scheduler.
fn commits(
    store: &SqliteStore,
    workflow: WorkflowId,
    jobs: &[JobId],
    size: usize,
) -> Result<(), Box<dyn Error>> {
    let jobs = &jobs[..jobs.len().min(size * 5000)];
    let worker = store.add_worker(&worker(workflow), Timestamp(1))?;
    let (sender, receiver) = mpsc::channel();
    let (begin, cpu) = (Instant::now(), cpu_seconds());
    let mut commands = Duration::ZERO;
    let mut waiting = 0;
    let mut batches = jobs.chunks(size);
    let mut last: &[JobId] = &[];
    loop {
        let next = batches.next().unwrap_or_default();
        if next.is_empty() && last.is_empty() {
            break;
        }
        let changes: Arc<[WorkflowChange]> = last
            .iter()
            .map(|job| end(workflow, *job, worker))
            .chain(next.iter().map(|job| WorkflowChange::Claim {
                job: *job,
                attempt: Attempt::FIRST,
                worker,
            }))
            .collect();
        let sender = sender.clone();
        let done = Box::new(move |outcome| sender.send(outcome).unwrap_or_default());
        store.submit(ChangeBatch { workflow, run: RUN, changes }, done);
        waiting += 1;
        let reading = Instant::now();
        store.load_job_commands(next)?;
        commands += reading.elapsed();
        if waiting == 2 {
            receiver.recv()??;
            waiting -= 1;
        }
        last = next;
    }
    for _ in 0..waiting {
        receiver.recv()??;
    }
    let elapsed = begin.elapsed();
    println!(
        "{:>9.3} s {:>6.2} s CPU  claim and end {} jobs, {size} a batch: {:.0} jobs/s, {:.0} µs a batch (reading commands {:.1} µs a job)",
        elapsed.as_secs_f64(),
        cpu_seconds() - cpu,
        jobs.len(),
        jobs.len() as f64 / elapsed.as_secs_f64(),
        elapsed.as_secs_f64() * 1e6 * size as f64 / jobs.len() as f64,
        commands.as_secs_f64() * 1e6 / jobs.len() as f64,
    );
    Ok(())
}

fn end(workflow: WorkflowId, job: JobId, worker: WorkerId) -> WorkflowChange {
    WorkflowChange::End {
        from: JobStatus::Pending,
        to: JobStatus::Completed,
        result: AttemptResult {
            key: AttemptKey { workflow, job, run: RUN, attempt: Attempt::FIRST },
            worker,
            status: JobStatus::Completed,
            return_code: 0,
            exit: Some(ProcessExit::Code(0)),
            out_of_memory: false,
            reason: None,
            started_at: Some(Timestamp(1_700_000_000_000_000)),
            ended_at: Timestamp(1_700_000_000_001_000),
            wall: Duration::from_millis(1),
            usage: AttemptUsage { cpu_time: Duration::from_micros(700), ..AttemptUsage::default() },
            files: None,
            recovered: None,
        },
        next_attempt: Attempt::FIRST,
        orphaned: false,
        failure: None,
        inherited: None,
    }
}

fn create(
    store: &SqliteStore,
    jobs: u32,
    edges: &DependencyEdges,
) -> Result<WorkflowId, windlass_store::StoreError> {
    create_named(store, jobs, edges, |n, name| {
        use std::fmt::Write as _;
        write!(name, "job_{n:07}").is_ok()
    })
}

fn create_shuffled(store: &SqliteStore, jobs: u32) -> Result<WorkflowId, windlass_store::StoreError> {
    create_named(store, jobs, &DependencyEdges::default(), |n, name| {
        use std::fmt::Write as _;
        write!(name, "job_{:08x}_{n}", n.wrapping_mul(0x9e37_79b1)).is_ok()
    })
}

fn create_named(
    store: &SqliteStore,
    jobs: u32,
    edges: &DependencyEdges,
    name_of: impl Fn(u32, &mut String) -> bool,
) -> Result<WorkflowId, windlass_store::StoreError> {
    let workflow = NewWorkflow {
        name: "bench",
        user: "me",
        submission_dir: "/tmp",
        output_dir: "/tmp/out",
        edges,
        ..NewWorkflow::default()
    };
    let names: Vec<String> = (0..jobs)
        .map(|n| {
            let mut name = String::new();
            name_of(n, &mut name);
            name
        })
        .collect();
    let command = "echo hello from this job; sleep 0.01";
    let mut rows =
        InMemoryJobSource::new(names.iter().map(|name| NewJob::from(JobDefinition::new(&**name, command))));
    store.create_workflow(&workflow, &mut rows, SystemClock.now())
}

fn chain(jobs: u32) -> DependencyEdges {
    let mut builder = DependencyEdgesBuilder::default();
    for job in 1..jobs {
        builder.add_dependencies(job, &[job - 1]);
    }
    builder.finish()
}

fn worker(workflow: WorkflowId) -> NewWorker {
    NewWorker {
        workflow: Some(workflow),
        run: Some(RUN),
        host: "here".into(),
        boot_id: "now".into(),
        pid: std::process::id(),
        pid_start_ticks: 0,
        token: "token".into(),
        ledger_path: "/tmp/ledger".into(),
        capacity: Capacity { cpus: 2, memory: Bytes(1 << 30), gpus: 0, nodes: 1, max_jobs: None },
        ..NewWorker::default()
    }
}

/// Prints wall time and CPU time; the latter depends less on the load of the machine.
fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let (begin, cpu) = (Instant::now(), cpu_seconds());
    let value = work();
    println!("{:>9.3} s {:>6.2} s CPU  {what}", begin.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    value
}

/// User and system time of this process; the kernel counts in hundredths.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn log_length(db: &Path) -> u64 {
    let mut log = db.as_os_str().to_owned();
    log.push("-wal");
    Path::new(&log).metadata().map_or(0, |metadata| metadata.len())
}

fn peak_memory() -> Bytes {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    let kib = line.split_ascii_whitespace().nth(1).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    Bytes(kib * 1024)
}
