//! `kill -9` during writes: acknowledged batches are stored, and no batch is stored partially.

use super::child;
use crate::kit::{RUN, claim, counts, create, end, key, worker};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;
use windlass_store::model::ResultFilter;
use windlass_store::sqlite::{OpenMode, SqliteStore};
use windlass_store::{ChangeBatch, Store};
use windlass_types::{JobStatus, WorkflowId};

const JOBS: usize = 4000;
/// Claimed and ended in one batch.
const BATCH: usize = 4;

#[test]
fn acknowledged_batches_survive_kill_9() {
    if let Some(db) = child::part() {
        write_until_killed(&db);
    }
    for acknowledged in [1, 7, 60, 300] {
        kill_after(acknowledged);
    }
}

fn kill_after(acknowledged: usize) {
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("windlass.db");
    let mut command = child::command("sqlite::crash::acknowledged_batches_survive_kill_9", &db);
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
    let is_acknowledgement = |line: &String| line.starts_with("batch ");
    let before: Vec<String> = lines.by_ref().filter(is_acknowledgement).take(acknowledged).collect();
    assert_eq!(before.len(), acknowledged);
    process.kill().unwrap();
    process.wait().unwrap();
    // Its last output is acknowledged, too.
    let told = acknowledged + lines.filter(is_acknowledgement).count();

    let store = SqliteStore::open(&db, OpenMode::ReadWrite).unwrap().store;
    let workflow = WorkflowId(1);
    let status = store.load_jobs(workflow).unwrap().status;
    let batches: Vec<&[JobStatus]> = status.chunks(BATCH).collect();
    for (i, batch) in batches.iter().enumerate() {
        assert!(batch.iter().all(|status| *status == batch[0]), "batch {i} is stored partially: {batch:?}");
        assert!(
            i >= told || batch[0] == JobStatus::Completed,
            "batch {i} was acknowledged and is {}",
            batch[0]
        );
    }
    let completed = counts(&store, workflow).get(JobStatus::Completed);
    let results = store.results(workflow, &ResultFilter::default()).unwrap();
    assert_eq!(results.len() as u64, completed);
}

/// Writes batches without waiting, so that they are committed in groups, and prints every acknowledgement.
fn write_until_killed(db: &Path) -> ! {
    let store = SqliteStore::create(db).unwrap().store;
    let (workflow, jobs) = create(&store, JOBS);
    let worker = worker(&store, workflow);
    for (i, jobs) in jobs.chunks(BATCH).enumerate() {
        let claims = jobs.iter().map(|job| claim(*job, 1, worker));
        let ends = jobs.iter().map(|job| end(key(workflow, *job, 1), worker, JobStatus::Completed));
        let changes = claims.chain(ends).collect();
        let done = Box::new(move |outcome: Result<(), windlass_store::StoreError>| {
            outcome.unwrap();
            // Not println: it would be buffered, or captured by the test harness.
            writeln!(std::io::stdout().lock(), "\nbatch {i}").unwrap();
        });
        store.submit(ChangeBatch { workflow, run: RUN, changes }, done);
    }
    drop(store);
    // All batches are acknowledged; the parent is about to kill this process.
    loop {
        std::thread::park();
    }
}
