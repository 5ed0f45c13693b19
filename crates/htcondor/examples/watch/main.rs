//! Measures the cost of following many running DAGs: `cargo xtask bench dag watch` runs it.
//!
//! `watch DIRECTORY DAGS UNITS NODES RUNS` writes DAGS runs of UNITS units of NODES nodes, as DAGMan leaves them
//! half-way; polls all of them; then advances each and polls again, RUNS times. Prints the measurements as one
//! line of JSON.

mod watched_dags;

use std::io::{Error, Write as _};
use std::path::Path;
use std::time::Instant;
use watched_dags::WatchedDags;
use windlass_htcondor::watch::{DagPoller, DagState};

fn main() -> std::io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [directory, numbers @ ..] = words.as_slice() else {
        return Err(Error::other("watch DIRECTORY DAGS UNITS NODES RUNS"));
    };
    let numbers: Vec<u32> =
        numbers.iter().map(|word| word.parse().map_err(Error::other)).collect::<Result<_, _>>()?;
    let [dags, units, nodes, runs] = numbers[..] else {
        return Err(Error::other("watch DIRECTORY DAGS UNITS NODES RUNS"));
    };
    let mut watched_dags = WatchedDags::write(Path::new(directory), dags, units, nodes)?;
    let before = memory("VmRSS:")?;
    let mut watches: Vec<DagPoller> = (0..dags).map(|dag| DagPoller::new(&watched_dags.run(dag))).collect();
    let first = pass(&mut watches)?;
    // A poller that starts half-way counts the completed units over several polls.
    let mut counting = Vec::new();
    let mut last = first;
    loop {
        let next = pass(&mut watches)?;
        if next.done == last.done {
            break;
        }
        counting.push(next.seconds);
        last = next;
    }
    let mut busy = Vec::new();
    let mut quiet = Vec::new();
    for _ in 0..runs {
        watched_dags.get_on()?;
        let with_news = pass(&mut watches)?;
        if with_news.news != dags as usize {
            return Err(Error::other(format!("{} updates of {dags} DAGs", with_news.news)));
        }
        busy.push(with_news.seconds);
        quiet.push(pass(&mut watches)?.seconds);
    }
    let told = serde_json::json!({
        "first_seconds": first.seconds,
        "counting_seconds": counting,
        "busy_seconds": busy,
        "quiet_seconds": quiet,
        "nodes_done": last.done,
        "attempts": last.attempts,
        "memory_kb": memory("VmRSS:")?.saturating_sub(before),
        "peak_mb": memory("VmHWM:")? >> 10,
    });
    writeln!(std::io::stdout(), "{told}")
}

#[derive(Clone, Copy)]
struct Pass {
    seconds: f64,
    news: usize,
    done: u64,
    attempts: u64,
}

/// Polls each DAG once.
fn pass(watches: &mut [DagPoller]) -> std::io::Result<Pass> {
    let begin = Instant::now();
    let mut pass = Pass { seconds: 0.0, news: 0, done: 0, attempts: 0 };
    for watch in watches {
        let look = watch.poll();
        if look.state != DagState::Running || look.read_error.is_some() {
            return Err(Error::other(format!("{:?}: {:?}", look.state, look.read_error)));
        }
        pass.news += look.units.len();
        pass.done += look.counts.done;
        pass.attempts += look.ended_by_site.values().map(|ended| ended.total()).sum::<u64>();
    }
    pass.seconds = begin.elapsed().as_secs_f64();
    Ok(pass)
}

/// A memory field of this process in kB.
fn memory(field: &str) -> std::io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
    number.and_then(|number| number.parse().ok()).ok_or_else(|| Error::other(format!("no {field}")))
}
