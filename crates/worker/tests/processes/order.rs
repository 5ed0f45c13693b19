//! The queue: strictly in order, and every job reported exactly once.

use crate::support::{AWAIT_GATE, Bench, job, lines};
use std::collections::BTreeSet;
use windlass_types::JobId;
use windlass_types::worker_messages::{AttemptEndCause, ProcessExit};

#[test]
fn nothing_overtakes_a_job_that_waits_for_resources() {
    let mut bench = Bench::new();
    let mut first = job(1, &format!("{AWAIT_GATE}; echo 1 >> order"));
    first.resources.cpus = 1;
    let mut wide = job(2, "echo 2 >> order");
    wide.resources.cpus = 2;
    let small = (3..6).map(|id| job(id, &format!("echo {id} >> order; echo here > seen-{id}")));
    bench.assign([first, wide].into_iter().chain(small));
    // By now a small one would have had the time to start on the free CPU.
    assert_eq!(bench.started().0, JobId(1));
    assert!(!bench.path("seen-3").exists());
    bench.open_gate();
    for _ in 0..5 {
        assert_eq!(bench.ended().cause, AttemptEndCause::Itself);
    }
    let order = lines(&bench.path("order"));
    assert_eq!(order[..2], ["1", "2"]);
    assert_eq!(order[2..].iter().collect::<BTreeSet<_>>().len(), 3);
    bench.quit();
}

#[test]
fn as_many_jobs_run_at_once_as_fit() {
    let mut bench = Bench::with(|options| options.capacity.cpus = 5);
    // Each waits until all five exist.
    let meet = "touch here-$WINDLASS_JOB_ID; while [ $(ls -d here-* | wc -l) -lt 5 ]; do sleep 0.02; done";
    bench.assign((1..=5).map(|id| job(id, meet)));
    for _ in 0..5 {
        assert_eq!(bench.ended().exit, ProcessExit::Code(0));
    }
    bench.quit();
}

#[test]
fn many_short_jobs_are_reported_once_each_in_batches() {
    const JOBS: i64 = 2000;
    let mut bench = Bench::new();
    for start in (1..=JOBS).step_by(500) {
        bench.assign((start..start + 500).map(|id| job(id, "true")));
    }
    let mut seen = BTreeSet::new();
    for _ in 0..JOBS {
        let ended = bench.ended();
        assert_eq!((ended.exit, ended.cause), (ProcessExit::Code(0), AttemptEndCause::Itself));
        assert!(seen.insert(ended.key.job), "{} twice", ended.key);
    }
    assert_eq!(seen, (1..=JOBS).map(JobId).collect());
    assert!(bench.messages < JOBS as usize / 2, "{} messages", bench.messages);
    bench.quit();
}
