//! The queue: strictly in order, and every job reported exactly once.

use crate::support::{AWAIT_GO_FILE, Fixture, job, lines};
use std::collections::BTreeSet;
use windlass_types::JobId;
use windlass_types::worker_messages::{AttemptEndCause, ProcessExit};

#[test]
fn nothing_overtakes_a_job_that_waits_for_resources() {
    let mut fixture = Fixture::new();
    let mut first = job(1, &format!("{AWAIT_GO_FILE}; echo 1 >> order"));
    first.resources.cpus = 1;
    let mut wide = job(2, "echo 2 >> order");
    wide.resources.cpus = 2;
    let small = (3..6).map(|id| job(id, &format!("echo {id} >> order; echo here > seen-{id}")));
    fixture.assign([first, wide].into_iter().chain(small));
    // By now a small one would have had the time to start on the free CPU.
    assert_eq!(fixture.started().0, JobId(1));
    assert!(!fixture.path("seen-3").exists());
    fixture.write_go_file();
    for _ in 0..5 {
        assert_eq!(fixture.ended().cause, AttemptEndCause::Itself);
    }
    let order = lines(&fixture.path("order"));
    assert_eq!(order[..2], ["1", "2"]);
    assert_eq!(order[2..].iter().collect::<BTreeSet<_>>().len(), 3);
    fixture.quit();
}

#[test]
fn as_many_jobs_run_at_once_as_fit() {
    let mut fixture = Fixture::with(|options| options.capacity.cpus = 5);
    // Each waits until all five exist.
    let meet = "touch here-$WINDLASS_JOB_ID; while [ $(ls -d here-* | wc -l) -lt 5 ]; do sleep 0.02; done";
    fixture.assign((1..=5).map(|id| job(id, meet)));
    for _ in 0..5 {
        assert_eq!(fixture.ended().exit, ProcessExit::Code(0));
    }
    fixture.quit();
}

#[test]
fn many_short_jobs_are_reported_once_each_in_batches() {
    const JOBS: i64 = 2000;
    let mut fixture = Fixture::new();
    for start in (1..=JOBS).step_by(500) {
        fixture.assign((start..start + 500).map(|id| job(id, "true")));
    }
    let mut seen = BTreeSet::new();
    for _ in 0..JOBS {
        let ended = fixture.ended();
        assert_eq!((ended.exit, ended.cause), (ProcessExit::Code(0), AttemptEndCause::Itself));
        assert!(seen.insert(ended.key.job), "{} twice", ended.key);
    }
    assert_eq!(seen, (1..=JOBS).map(JobId).collect());
    assert!(fixture.messages < JOBS as usize / 2, "{} messages", fixture.messages);
    fixture.quit();
}
