//! Queries under load, and their latencies.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use serde_json::Value;

use super::http::Http;

/// The pause between queries, so that they are not the main load of the server.
const PAUSE: Duration = Duration::from_millis(20);

/// The resources of a runner with one free CPU. Only jobs with this label match, and no worker has it.
const OFFER: &str = r#"{"num_cpus":1,"memory_gb":1.0,"num_gpus":0,"num_nodes":1,"labels":["unused"]}"#;

pub(in crate::bench) type QueryFunction = fn(&Http, &str) -> Result<Value>;

/// Sorted in ascending order.
pub(in crate::bench) struct QueryLatencies(Vec<Duration>);

pub(in crate::bench) struct QueryProbe {
    over: Arc<AtomicBool>,
    threads: Vec<(&'static str, JoinHandle<Result<Vec<Duration>>>)>,
}

impl QueryProbe {
    /// Claims come from `decoy`, whose jobs no worker takes.
    pub(in crate::bench) fn start(http: &Http, workflow: i64, decoy: i64) -> Self {
        let list = format!("/jobs?workflow_id={workflow}&limit=100");
        let status = format!("/workflows/{workflow}/status");
        let claim_path = claim_path(decoy);
        let questions: [(&'static str, String, QueryFunction); 3] = [
            ("list of 100 jobs, under load", list, Http::get),
            ("status, under load", status, Http::get),
            ("claim, under load", claim_path, claim),
        ];
        Self::ask(http, questions)
    }

    /// Repeats each of these queries on its own connection.
    pub(in crate::bench) fn ask(
        http: &Http,
        questions: impl IntoIterator<Item = (&'static str, String, QueryFunction)>,
    ) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let threads = questions.into_iter().map(|(name, path, ask)| {
            let (http, over) = (http.clone(), Arc::clone(&over));
            let ask_on = move || {
                let mut times = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    ask(&http, &path)?;
                    times.push(begun.elapsed());
                    thread::sleep(PAUSE);
                }
                Ok(times)
            };
            (name, thread::spawn(ask_on))
        });
        Self { threads: threads.collect(), over }
    }

    pub(in crate::bench) fn stop(self) -> Result<Vec<(&'static str, QueryLatencies)>> {
        self.over.store(true, Ordering::Relaxed);
        let joined = self.threads.into_iter().map(|(name, thread)| {
            let times = thread.join().map_err(|_| anyhow!("the thread that asks for {name} panicked"))??;
            Ok((name, QueryLatencies::of(times)))
        });
        joined.collect()
    }
}

/// Claims one job after the other on an idle server.
pub(in crate::bench) fn claims(http: &Http, workflow: i64, count: usize) -> Result<QueryLatencies> {
    let path = claim_path(workflow);
    let times = (0..count).map(|_| {
        let begun = Instant::now();
        claim(http, &path)?;
        Ok(begun.elapsed())
    });
    Ok(QueryLatencies::of(times.collect::<Result<_>>()?))
}

fn claim_path(workflow: i64) -> String {
    format!("/workflows/{workflow}/claim_jobs_based_on_resources/1")
}

/// A claim that returns no job would measure nothing.
fn claim(http: &Http, path: &str) -> Result<Value> {
    let answer = http.post(path, OFFER)?;
    ensure!(answer["jobs"].as_array().is_some_and(|jobs| jobs.len() == 1), "nothing was claimed: {answer}");
    Ok(answer)
}

impl QueryLatencies {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// In milliseconds.
    fn quantile(&self, part: f64) -> f64 {
        let index = ((self.0.len() as f64 * part) as usize).min(self.0.len().saturating_sub(1));
        self.0.get(index).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    }
}

impl fmt::Display for QueryLatencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "p50 {:>6.2} ms   p99 {:>6.2} ms   most {:>6.2} ms   ({} calls)",
            self.quantile(0.5),
            self.quantile(0.99),
            self.quantile(1.0),
            self.0.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_taken_from_sorted_times() {
        let latencies = QueryLatencies::of((1..=100).rev().map(Duration::from_millis).collect());
        assert!((latencies.quantile(0.5) - 51.0).abs() < 1e-9);
        assert!((latencies.quantile(0.99) - 100.0).abs() < 1e-9);
        assert!(QueryLatencies::of(Vec::new()).quantile(0.5).is_nan());
    }
}
