//! A full disk: the error is transient, nothing is stored partially, and the same batch succeeds once there is
//! space.

use super::child;
use crate::kit::{RUN, claim, commit_batch, counts, create, end, key, worker};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use windlass_core::change::WorkflowChange;
use windlass_store::model::ResultFilter;
use windlass_store::sqlite::{OpenMode, SqliteStore};
use windlass_store::{ChangeBatch, Store, StoreError};
use windlass_types::{JobId, JobStatus, WorkerId, WorkflowId};

const JOBS: usize = 3000;

struct StoreOnSmallDisk {
    store: SqliteStore,
    workflow: WorkflowId,
    worker: WorkerId,
    jobs: Vec<JobId>,
}

impl StoreOnSmallDisk {
    fn new(db: &Path) -> Self {
        let store = SqliteStore::create(db).unwrap().store;
        let (workflow, jobs) = create(&store, JOBS);
        let worker = worker(&store, workflow);
        Self { store, workflow, worker, jobs }
    }

    /// Runs the jobs in order until a batch is rejected; returns that batch and the error.
    fn fill(&self) -> (Arc<[WorkflowChange]>, StoreError) {
        for jobs in self.jobs.chunks(20) {
            let claims = jobs.iter().map(|job| claim(*job, 1, self.worker));
            let ends =
                jobs.iter().map(|job| end(key(self.workflow, *job, 1), self.worker, JobStatus::Completed));
            let changes: Arc<[WorkflowChange]> = claims.chain(ends).collect();
            if let Err(error) = self.submit(&changes) {
                return (changes, error);
            }
        }
        panic!("the disk did not fill up");
    }

    fn submit(&self, changes: &Arc<[WorkflowChange]>) -> Result<(), StoreError> {
        let batch = ChangeBatch { workflow: self.workflow, run: RUN, changes: Arc::clone(changes) };
        commit_batch(&self.store, batch)
    }

    /// Returns the number of completed jobs, after checking that no batch is stored partially.
    fn completed(&self) -> u64 {
        let counts = counts(&self.store, self.workflow);
        let (completed, ready) = (counts.get(JobStatus::Completed), counts.get(JobStatus::Ready));
        assert_eq!(completed + ready, JOBS as u64);
        let results = self.store.results(self.workflow, &ResultFilter::default()).unwrap();
        assert_eq!(results.len() as u64, completed);
        completed
    }

    /// Fills the disk, frees space with `free`, and checks that everything continues.
    fn survive(&self, free: impl FnOnce()) -> StoreError {
        let (refused, error) = self.fill();
        assert!(error.is_transient(), "{error:?}");
        assert!(error.hint().is_some());
        let before = self.completed();
        let again = self.submit(&refused).unwrap_err();
        assert!(again.is_transient(), "{again:?}");
        let creating = try_create(&self.store);
        assert!(creating.is_transient(), "{creating:?}");
        assert_eq!(self.completed(), before);
        assert!(
            self.store
                .write_failure()
                .is_some_and(|told| told.is_transient() && told.public_message().is_some())
        );
        free();
        self.submit(&refused).unwrap();
        assert!(self.store.write_failure().is_none());
        assert_eq!(self.completed(), before + 20);
        error
    }
}

/// Tries to create a workflow that is too large.
fn try_create(store: &dyn Store) -> StoreError {
    let edges = windlass_core::dependency_edges::DependencyEdges::default();
    let names: Vec<String> = (0..100_000).map(|i| format!("large_{i}")).collect();
    let mut jobs =
        windlass_store::model::InMemoryJobSource::new(names.iter().map(|name| crate::kit::job(name)));
    store.create_workflow(&crate::kit::workflow(&[], &edges), &mut jobs, crate::kit::NOW).unwrap_err()
}

/// A disk of a few megabytes, unmounted when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path, size: &str) -> Self {
        let size = format!("size={size}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at).status();
        let mounted = mounted.is_ok_and(|status| status.success());
        assert!(mounted, "this test mounts a small disk and needs to be root");
        Self(at.to_owned())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "{} is still mounted", self.0.display());
    }
}

#[test]
fn writes_resume_after_a_full_disk() {
    let directory = tempfile::tempdir().unwrap();
    let disk = SmallDisk::mount(directory.path(), "3m");
    let job_store = StoreOnSmallDisk::new(&directory.path().join("windlass.db"));
    let filler = directory.path().join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    drop(file);
    let error = job_store.survive(|| std::fs::remove_file(&filler).unwrap());
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error:?}");
    let path = job_store.store.path().to_owned();
    drop(job_store);
    SqliteStore::open(path, OpenMode::ReadOnly).unwrap();
    drop(disk);
}

/// One commit follows another at once, as when jobs are short, so that nothing but the commits can keep the journal small.
#[test]
fn four_hundred_jobs_complete_on_a_disk_of_6_mb() {
    let directory = tempfile::tempdir().unwrap();
    let disk = SmallDisk::mount(directory.path(), "6m");
    let store = SqliteStore::create(directory.path().join("windlass.db")).unwrap().store;
    let (workflow, jobs) = create(&store, 400);
    let worker = worker(&store, workflow);
    for job in jobs {
        let key = key(workflow, job, 1);
        for change in [claim(job, 1, worker), end(key, worker, JobStatus::Completed)] {
            let batch = ChangeBatch { workflow, run: RUN, changes: [change].into() };
            commit_batch(&store, batch).unwrap();
        }
    }
    assert_eq!(counts(&store, workflow).get(JobStatus::Completed), 400);
    let results = store.results(workflow, &ResultFilter::default()).unwrap();
    assert_eq!(results.len(), 400, "each ran once");
    drop(store);
    drop(disk);
}

/// What did not fit has filled the disk with the journal, which must not stay.
#[test]
fn failed_large_workflow_frees_its_space() {
    let directory = tempfile::tempdir().unwrap();
    let disk = SmallDisk::mount(directory.path(), "6m");
    let store = SqliteStore::create(directory.path().join("windlass.db")).unwrap().store;
    let (workflow, jobs) = create(&store, 400);
    let worker = worker(&store, workflow);
    for jobs in jobs.chunks(20) {
        for job in jobs {
            let ended = end(key(workflow, *job, 1), worker, JobStatus::Completed);
            let changes = [claim(*job, 1, worker), ended].into();
            commit_batch(&store, ChangeBatch { workflow, run: RUN, changes }).unwrap();
        }
        let error = try_create(&store);
        assert!(matches!(error, StoreError::DiskFull { .. }), "{error:?}");
    }
    assert_eq!(counts(&store, workflow).get(JobStatus::Completed), 400);
    drop(store);
    drop(disk);
}

#[test]
fn read_only_file_system_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let disk = SmallDisk::mount(directory.path(), "6m");
    let db = directory.path().join("windlass.db");
    drop(SqliteStore::create(&db).unwrap());
    let remount = Command::new("mount").args(["-o", "remount,ro"]).arg(directory.path()).status();
    assert!(remount.is_ok_and(|status| status.success()));
    let error = SqliteStore::open(&db, OpenMode::ReadWrite).unwrap_err();
    assert!(matches!(error, StoreError::ReadOnly { .. }), "{error:?}");
    assert!(error.hint().unwrap().contains("mounted read-only"), "{error}");
    drop(disk);
}

/// As after an error of the disk: the kernel rejects writes, and may leave the mount flags as they are.
#[test]
fn aborted_file_system_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    let run = |program: &str, arguments: &[&str], path: &Path| {
        let status = Command::new(program).args(arguments).arg(path).status();
        assert!(status.is_ok_and(|status| status.success()), "{program} {arguments:?}: are we root?");
    };
    run("mkfs.ext4", &["-q"], &image);
    let place = directory.path().join("disk");
    std::fs::create_dir(&place).unwrap();
    run("mount", &["-o", "loop", image.to_str().unwrap()], &place);
    let disk = SmallDisk(place.clone());
    let job_store = StoreOnSmallDisk::new(&place.join("windlass.db"));
    run("mount", &["-o", "remount,abort"], &place);
    let (_, error) = job_store.fill();
    assert!(error.to_string().contains("mounted read-only"), "{error}");
    drop(job_store);
    drop(disk);
}

#[test]
fn writes_resume_after_a_file_size_limit() {
    if let Some(db) = child::part() {
        let job_store = StoreOnSmallDisk::new(&db);
        job_store.survive(|| {
            let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize);
            let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
            rustix::process::setrlimit(rustix::process::Resource::Fsize, raised).unwrap();
        });
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("windlass.db");
    let test = "sqlite::full_disk::writes_resume_after_a_file_size_limit";
    // 2400 blocks of 512 bytes; SIGXFSZ is ignored so that the write fails instead.
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -S -f 2400; exec \"$0\" \"$@\""]);
    let itself = child::command(test, &db);
    shell.arg(itself.get_program()).args(itself.get_args());
    shell.envs(itself.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    // The child has done its part.
    let store = SqliteStore::open(&db, OpenMode::ReadOnly).unwrap().store;
    assert!(store.workflows().unwrap()[0].counts.get(JobStatus::Completed) > 0);
}
