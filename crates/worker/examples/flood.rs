//! Measures the cost per job: ten thousand times `true`, run by a worker and by `xargs`, two at a time.
//!
//! `cargo run --release -p windlass-worker --example flood [JOBS] [ROUNDS]`. Build with `--bins` first: the
//! worker is the `windlass-worker-host` beside the examples.

#![expect(clippy::print_stdout, reason = "a measuring program prints what it measured")]

use std::fmt::Write as _;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use windlass_types::worker_messages::{
    Assignment, AttemptEndCause, AttemptKey, AttemptReport, FromWorker, ToWorker,
};
use windlass_types::{Attempt, Bytes, Capacity, JobId, Resources, RunId, WorkflowId};
use windlass_worker::{LaunchedWorker, WorkerOptions, launch_worker};

/// The number of jobs assigned ahead, as by the scheduler: a few batches, topped up when reports arrive.
const AHEAD: usize = 64;
const AT_ONCE: u32 = 2;

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (jobs, rounds) = (number(10_000), number(3));
    let scratch = std::env::temp_dir().join(format!("windlass-flood-{}", std::process::id()));
    for round in 0..rounds {
        let worker = flood(&scratch.join(round.to_string()), jobs)?;
        let xargs = by_xargs(jobs)?;
        println!(
            "{jobs} jobs: worker {:.3} ms/job (worker's own CPU {:.3}, {} messages), xargs {:.3} ms/job, ratio {:.2}",
            per_job(worker.wall, jobs),
            per_job(worker.own_cpu, jobs),
            worker.messages,
            per_job(xargs, jobs),
            worker.wall.as_secs_f64() / xargs.as_secs_f64(),
        );
    }
    // Deleted only now: on some file systems, creating files is slow right after many were deleted.
    fs::remove_dir_all(&scratch)
}

struct FloodResult {
    wall: Duration,
    own_cpu: Duration,
    messages: usize,
}

fn flood(directory: &Path, jobs: usize) -> io::Result<FloodResult> {
    fs::create_dir_all(directory)?;
    let capacity = Capacity { cpus: AT_ONCE, memory: Bytes(1 << 34), gpus: 0, nodes: 1, max_jobs: None };
    let options = WorkerOptions::new(
        capacity,
        directory.to_owned(),
        directory.to_owned(),
        directory.join("ledger"),
        format!("flood-{}", std::process::id()),
    );
    let host = std::env::current_exe()?.with_file_name("../windlass-worker-host");
    let LaunchedWorker { mut child, mut link } = launch_worker(Command::new(host), &options)?;
    let mut reader = BufReader::new(link.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;

    let begin = Instant::now();
    let (mut sent, mut ended, mut messages) = (0, 0, 0);
    while ended < jobs {
        if sent < jobs && sent - ended <= AHEAD / 2 {
            let batch = (sent..jobs.min(ended + AHEAD)).map(assignment).collect::<Vec<_>>();
            sent += batch.len();
            send(&mut link, &ToWorker::Assign(batch))?;
        }
        line.clear();
        reader.read_line(&mut line)?;
        messages += 1;
        let FromWorker::Reports(reports) = serde_json::from_str(&line)? else {
            return Err(io::Error::other(line));
        };
        for report in reports {
            match report {
                AttemptReport::Ended(end)
                    if end.cause == AttemptEndCause::Itself && end.exit.return_code() == 0 =>
                {
                    ended += 1;
                }
                AttemptReport::Started { .. } | AttemptReport::LeftBehind { .. } => {}
                other => return Err(io::Error::other(format!("{other:?}"))),
            }
        }
    }
    let wall = begin.elapsed();
    let own_cpu = own_cpu(child.id())?;
    send(&mut link, &ToWorker::Quit)?;
    child.wait()?;
    Ok(FloodResult { wall, own_cpu, messages })
}

/// User and system time of the worker itself, without its children, from fields 14 and 15.
fn own_cpu(pid: u32) -> io::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().filter_map(|field| fields.get(*field)?.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(ticks * 10))
}

fn by_xargs(jobs: usize) -> io::Result<Duration> {
    let mut commands = String::new();
    for _ in 0..jobs {
        writeln!(commands, "true").map_err(io::Error::other)?;
    }
    let begin = Instant::now();
    let mut xargs = Command::new("xargs")
        .args(["-P", &AT_ONCE.to_string(), "-I{}", "sh", "-c", "{}"])
        .stdin(Stdio::piped())
        .spawn()?;
    let mut input = xargs.stdin.take().ok_or_else(|| io::Error::other("no pipe"))?;
    input.write_all(commands.as_bytes())?;
    drop(input);
    xargs.wait()?;
    Ok(begin.elapsed())
}

fn assignment(index: usize) -> Assignment {
    let key = AttemptKey {
        workflow: WorkflowId(1),
        job: JobId(index as i64 + 1),
        run: RunId(1),
        attempt: Attempt::FIRST,
    };
    Assignment::from_command(key, format!("flood_{index}"), "true".into(), Resources::DEFAULT)
}

fn send(link: &mut impl io::Write, message: &ToWorker) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    link.write_all(&line)
}

fn per_job(time: Duration, jobs: usize) -> f64 {
    time.as_secs_f64() * 1000.0 / jobs as f64
}
