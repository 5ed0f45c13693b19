//! The records of a remote worker on its machine, by which the next worker there can end its processes and
//! deliver its results.
//!
//! One directory per worker, private to its user, locked while the worker lives. A directory that can be locked
//! belongs to a dead worker.

use crate::RemoteWorkerError;
use crate::result_journal::{JournalEntry, ResultJournal};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use windlass_process::machine;
use windlass_process::process_identity::{ProcessIdentity, boot_id};
use windlass_types::WorkerId;
use windlass_types::worker_messages::AttemptReport;

/// The prefix of the name of a worker's directory.
const DIRECTORY_PREFIX: &str = "agent-";
/// The prefix of a directory that is not ready yet and is ignored by others.
const UNFINISHED_PREFIX: &str = "new-";
const JOURNAL_FILE: &str = "journal";

/// The records about a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SavedWorkerState {
    pub(crate) url: String,
    /// The database of its server, if known.
    pub(crate) database: Option<String>,
    pub(crate) host: String,
    pub(crate) boot_id: String,
    /// The worker itself, with the mark in the environment of its actions. `None`: it has left orderly.
    pub(crate) agent: Option<SavedProcess>,
    /// The worker process with its jobs.
    pub(crate) running_worker: Option<SavedProcess>,
    /// Its credentials at the server.
    pub(crate) me: Option<WorkerCredentials>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedProcess {
    pub(crate) pid: u32,
    pub(crate) start_ticks: u64,
    /// The mark in the environment of all that it started.
    pub(crate) token: String,
    pub(crate) ledger: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkerCredentials {
    pub(crate) worker: WorkerId,
    pub(crate) secret: String,
}

/// The directory of one worker. Locked until it is dropped.
#[derive(Debug)]
pub(crate) struct StateDirectory {
    directory: PathBuf,
    _lock: File,
}

/// The parent directory for workers of this user on this machine: many machines may share the home directory.
pub fn default_state_dir() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").filter(|path| Path::new(path).is_absolute());
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".local/state"));
    let base = state.map(PathBuf::from).or_else(home)?;
    Some(base.join("windlass/workers").join(machine::hostname()))
}

impl StateDirectory {
    pub(crate) fn create(state_dir: &Path) -> Result<Self, RemoteWorkerError> {
        let failed = |source| RemoteWorkerError::StateDirectory { path: state_dir.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(state_dir).map_err(failed)?;
        let name = unique_name().map_err(failed)?;
        let unfinished = state_dir.join(format!("{UNFINISHED_PREFIX}{name}"));
        DirBuilder::new().mode(0o700).create(&unfinished).map_err(failed)?;
        let lock = File::create(unfinished.join("lock")).map_err(failed)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|e| failed(e.into()))?;
        let directory = state_dir.join(format!("{DIRECTORY_PREFIX}{name}"));
        fs::rename(&unfinished, &directory).map_err(failed)?;
        Ok(Self { directory, _lock: lock })
    }

    /// The directories of dead workers, now locked by this process.
    pub(crate) fn lock_abandoned(state_dir: &Path) -> Vec<Self> {
        list_directories(state_dir).filter_map(Self::lock_existing).collect()
    }

    /// The records of all workers here, alive and dead.
    pub(crate) fn load_all_states(state_dir: &Path) -> Vec<SavedWorkerState> {
        list_directories(state_dir).filter_map(|directory| load_state_in(&directory).ok()).collect()
    }

    fn lock_existing(directory: PathBuf) -> Option<Self> {
        let lock = File::options().write(true).open(directory.join("lock")).ok()?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
        // Another process may have removed it before the lock was taken.
        if !directory.exists() || is_copy(&directory) {
            return None;
        }
        Some(Self { directory, _lock: lock })
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn journal_path(&self) -> PathBuf {
        self.directory.join(JOURNAL_FILE)
    }

    pub(crate) fn ledger_path(&self, token: &str) -> PathBuf {
        self.directory.join(format!("ledger-{token}"))
    }

    /// Replaces the state file atomically: readers find the old or the new content.
    pub(crate) fn save_state(&self, notes: &SavedWorkerState) -> Result<(), RemoteWorkerError> {
        let write = || {
            let new = self.directory.join("agent.json.new");
            let mut file = File::create(&new)?;
            // It holds a secret; the directory is private already.
            file.set_permissions(Permissions::from_mode(0o600))?;
            file.write_all(&serde_json::to_vec(notes)?)?;
            file.sync_data()?;
            fs::rename(&new, self.directory.join("agent.json"))
        };
        write().map_err(|source| RemoteWorkerError::StateDirectory { path: self.directory.clone(), source })
    }

    pub(crate) fn load_state(&self) -> io::Result<SavedWorkerState> {
        load_state_in(&self.directory)
    }

    /// Removes the directory.
    pub(crate) fn remove(self) {
        // If files stay, the next worker tries again.
        fs::remove_dir_all(&self.directory).ok();
    }
}

/// A worker of this user on this machine with undelivered results.
#[derive(Debug)]
pub struct UndeliveredSummary {
    /// The address of its server.
    pub url: String,
    pub host: String,
    pub worker: Option<WorkerId>,
    /// If not, the next worker on this machine delivers the results.
    pub is_alive: bool,
    pub reports: Vec<AttemptReport>,
}

/// Lists the undelivered results without changing anything.
pub fn list_undelivered(state_dir: &Path) -> io::Result<Vec<UndeliveredSummary>> {
    let entries = match fs::read_dir(state_dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(DIRECTORY_PREFIX) {
            continue;
        }
        // A directory removed in the meantime has been delivered.
        let Ok(notes) = load_state_in(&entry.path()) else { continue };
        let said = ResultJournal::read_entries(&entry.path().join(JOURNAL_FILE))?.into_iter();
        let reports: Vec<AttemptReport> = said.filter_map(JournalEntry::into_report).collect();
        if reports.is_empty() {
            continue;
        }
        let is_alive = notes.agent.is_some_and(|agent| {
            ProcessIdentity { pid: agent.pid, start_ticks: agent.start_ticks }.is_alive()
        });
        let worker = notes.me.map(|me| me.worker);
        found.push(UndeliveredSummary { url: notes.url, host: notes.host, worker, is_alive, reports });
    }
    Ok(found)
}

/// The directories of workers.
fn list_directories(state_dir: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(state_dir).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(DIRECTORY_PREFIX));
    named.map(|entry| entry.path())
}

/// Whether the directory of a living worker is not locked, and so is a copy: a worker keeps its own directory
/// locked, and the records in a copy must not be used to end that worker.
fn is_copy(directory: &Path) -> bool {
    let Ok(notes) = load_state_in(directory) else { return false };
    let is_here = boot_id().is_ok_and(|here| here == notes.boot_id);
    let process = |agent: SavedProcess| ProcessIdentity { pid: agent.pid, start_ticks: agent.start_ticks };
    is_here && notes.agent.is_some_and(|agent| process(agent).is_alive())
}

fn load_state_in(directory: &Path) -> io::Result<SavedWorkerState> {
    Ok(serde_json::from_slice(&fs::read(directory.join("agent.json"))?)?)
}

/// A unique random word.
pub(crate) fn unique_name() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undelivered_results_are_listed_without_changes() {
        use windlass_types::worker_messages::{AttemptKey, ReturnReason};
        use windlass_types::{Attempt, JobId, RunId, WorkflowId};
        let directory = tempfile::tempdir().unwrap();
        assert!(list_undelivered(&directory.path().join("none")).unwrap().is_empty());
        let key = AttemptKey { workflow: WorkflowId(1), job: JobId(2), run: RunId(1), attempt: Attempt(1) };
        let report = AttemptReport::Returned { key, why: ReturnReason::WorkerDied };
        let me = Some(WorkerCredentials { worker: WorkerId(5), secret: "hush".into() });
        let own = ProcessIdentity::from_pid(std::process::id()).unwrap();
        let process = |pid| SavedProcess { pid, start_ticks: own.start_ticks, ..SavedProcess::default() };
        let homes = [process(own.pid), process(u32::MAX)].map(|agent| {
            let home = StateDirectory::create(directory.path()).unwrap();
            let agent = Some(agent);
            home.save_state(&SavedWorkerState {
                url: "http://x".into(),
                me: me.clone(),
                agent,
                ..SavedWorkerState::default()
            })
            .unwrap();
            ResultJournal::new(home.journal_path()).append(&[JournalEntry::Report(report.clone())]).unwrap();
            home
        });
        let _nothing_to_tell = StateDirectory::create(directory.path()).unwrap();
        let mut found = list_undelivered(directory.path()).unwrap();
        found.sort_by_key(|found| found.is_alive);
        assert_eq!(found.iter().map(|found| found.is_alive).collect::<Vec<_>>(), [false, true]);
        assert!(
            found.iter().all(|found| found.reports == [report.clone()] && found.worker == Some(WorkerId(5)))
        );
        assert!(homes.iter().all(|home| home.journal_path().exists()));
    }

    #[test]
    fn a_copied_directory_of_a_living_worker_is_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let living = StateDirectory::create(&directory.path().join("original")).unwrap();
        let own = ProcessIdentity::own().unwrap();
        let agent = SavedProcess { pid: own.pid, start_ticks: own.start_ticks, ..SavedProcess::default() };
        living
            .save_state(&SavedWorkerState {
                boot_id: boot_id().unwrap(),
                agent: Some(agent),
                ..SavedWorkerState::default()
            })
            .unwrap();
        let copy = directory.path().join("copy");
        let copied = copy.join(living.directory().file_name().unwrap());
        fs::create_dir_all(&copied).unwrap();
        for name in ["lock", "agent.json"] {
            fs::copy(living.directory().join(name), copied.join(name)).unwrap();
        }
        assert!(StateDirectory::lock_abandoned(&copy).is_empty());
        assert!(copied.exists());
    }

    #[test]
    fn only_directories_of_dead_workers_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let living = StateDirectory::create(directory.path()).unwrap();
        let dead = StateDirectory::create(directory.path()).unwrap();
        let notes = SavedWorkerState { url: "http://x".into(), ..SavedWorkerState::default() };
        dead.save_state(&notes).unwrap();
        let mode = fs::metadata(dead.directory().join("agent.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let path = dead.directory().to_owned();
        assert!(StateDirectory::lock_abandoned(directory.path()).is_empty());
        drop(dead);
        // Another test may start a process at this moment, which holds the lock too until its exec.
        let give_up = std::time::Instant::now() + std::time::Duration::from_mins(1);
        let found = loop {
            let found = StateDirectory::lock_abandoned(directory.path());
            if !found.is_empty() || std::time::Instant::now() > give_up {
                break found;
            }
            std::thread::yield_now();
        };
        assert_eq!(found.iter().map(StateDirectory::directory).collect::<Vec<_>>(), [&path]);
        assert_eq!(found[0].load_state().unwrap(), notes);
        for home in found {
            home.remove();
        }
        assert!(!path.exists() && living.directory().exists());
    }
}
