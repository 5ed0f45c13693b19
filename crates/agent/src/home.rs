//! What an agent writes down on its machine, so that the next one there can clear up after it and deliver what it could
//! not.
//!
//! One directory per agent, private to its user, locked as long as the agent lives. Whoever finds one that can be locked
//! has found the legacy of a dead agent.

use crate::Error;
use crate::journal::{Entry, Journal};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use windlass_proc::identity::{Identity, boot_id};
use windlass_proc::machine;
use windlass_types::WorkerId;
use windlass_types::work::Report;

/// A directory of this name belongs to an agent, alive or dead.
const PREFIX: &str = "agent-";
/// One that is not ready yet is nobody's to look at.
const UNFINISHED: &str = "new-";
const JOURNAL: &str = "journal";

/// What is known of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Notes {
    pub(crate) url: String,
    pub(crate) host: String,
    pub(crate) boot_id: String,
    /// The agent itself, and what the actions that it runs carry in their environment. `None`: it left in peace.
    pub(crate) agent: Option<Process>,
    /// The process that runs its jobs.
    pub(crate) crew: Option<Process>,
    /// Who it is at the server.
    pub(crate) me: Option<Me>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) start_ticks: u64,
    /// In the environment of all that it started.
    pub(crate) token: String,
    pub(crate) ledger: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Me {
    pub(crate) worker: WorkerId,
    pub(crate) secret: String,
}

/// The directory of one agent. Locked until it is dropped.
#[derive(Debug)]
pub(crate) struct Home {
    directory: PathBuf,
    _lock: File,
}

/// Where agents of this user on this machine keep their directories: the home directory may be shared by many machines.
pub fn default_state_dir() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").filter(|path| Path::new(path).is_absolute());
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".local/state"));
    let base = state.map(PathBuf::from).or_else(home)?;
    Some(base.join("windlass/workers").join(machine::hostname()))
}

impl Home {
    pub(crate) fn create(state_dir: &Path) -> Result<Self, Error> {
        let failed = |source| Error::State { path: state_dir.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(state_dir).map_err(failed)?;
        let name = unique().map_err(failed)?;
        let unfinished = state_dir.join(format!("{UNFINISHED}{name}"));
        DirBuilder::new().mode(0o700).create(&unfinished).map_err(failed)?;
        let lock = File::create(unfinished.join("lock")).map_err(failed)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|e| failed(e.into()))?;
        let directory = state_dir.join(format!("{PREFIX}{name}"));
        fs::rename(&unfinished, &directory).map_err(failed)?;
        Ok(Self { directory, _lock: lock })
    }

    /// Those of dead agents, locked by us now.
    pub(crate) fn abandoned(state_dir: &Path) -> Vec<Self> {
        directories(state_dir).filter_map(Self::take_over).collect()
    }

    /// What agents here have written of themselves, those that live and those that do not.
    pub(crate) fn all_notes(state_dir: &Path) -> Vec<Notes> {
        directories(state_dir).filter_map(|directory| notes_in(&directory).ok()).collect()
    }

    fn take_over(directory: PathBuf) -> Option<Self> {
        let lock = File::options().write(true).open(directory.join("lock")).ok()?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
        // Another process may have cleared it away between the look and the lock.
        if !directory.exists() || is_copy(&directory) {
            return None;
        }
        Some(Self { directory, _lock: lock })
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.directory.join(JOURNAL)
    }

    pub(crate) fn ledger(&self, token: &str) -> PathBuf {
        self.directory.join(format!("ledger-{token}"))
    }

    /// All at once or not at all: whoever reads it finds the old or the new.
    pub(crate) fn note(&self, notes: &Notes) -> Result<(), Error> {
        let write = || {
            let new = self.directory.join("agent.json.new");
            let mut file = File::create(&new)?;
            // It holds a secret; the directory is private already.
            file.set_permissions(Permissions::from_mode(0o600))?;
            file.write_all(&serde_json::to_vec(notes)?)?;
            file.sync_data()?;
            fs::rename(&new, self.directory.join("agent.json"))
        };
        write().map_err(|source| Error::State { path: self.directory.clone(), source })
    }

    pub(crate) fn notes(&self) -> io::Result<Notes> {
        notes_in(&self.directory)
    }

    /// Nobody needs it any more.
    pub(crate) fn remove(self) {
        // What stays behind is looked at again by the next agent.
        fs::remove_dir_all(&self.directory).ok();
    }
}

/// A worker of this user on this machine with results that its server has not got.
#[derive(Debug)]
pub struct Undelivered {
    /// Where its server is.
    pub url: String,
    pub host: String,
    pub worker: Option<WorkerId>,
    /// If not, the next worker on this machine delivers what is here.
    pub is_alive: bool,
    pub reports: Vec<Report>,
}

/// What was not delivered; nothing is touched.
pub fn undelivered(state_dir: &Path) -> io::Result<Vec<Undelivered>> {
    let entries = match fs::read_dir(state_dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        // One that was cleared away meanwhile has delivered.
        let Ok(notes) = notes_in(&entry.path()) else { continue };
        let said = Journal::read(&entry.path().join(JOURNAL))?.into_iter();
        let reports: Vec<Report> = said.filter_map(Entry::into_report).collect();
        if reports.is_empty() {
            continue;
        }
        let is_alive = notes
            .agent
            .is_some_and(|agent| Identity { pid: agent.pid, start_ticks: agent.start_ticks }.is_alive());
        let worker = notes.me.map(|me| me.worker);
        found.push(Undelivered { url: notes.url, host: notes.host, worker, is_alive, reports });
    }
    Ok(found)
}

/// Of agents.
fn directories(state_dir: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(state_dir).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    named.map(|entry| entry.path())
}

/// An agent keeps its own directory locked: one that is not locked although its agent lives is a copy, whose notes give no
/// right to end that agent.
fn is_copy(directory: &Path) -> bool {
    let Ok(notes) = notes_in(directory) else { return false };
    let is_here = boot_id().is_ok_and(|here| here == notes.boot_id);
    let process = |agent: Process| Identity { pid: agent.pid, start_ticks: agent.start_ticks };
    is_here && notes.agent.is_some_and(|agent| process(agent).is_alive())
}

fn notes_in(directory: &Path) -> io::Result<Notes> {
    Ok(serde_json::from_slice(&fs::read(directory.join("agent.json"))?)?)
}

/// A word that nobody had before.
pub(crate) fn unique() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_delivered_is_seen_and_left_alone() {
        use windlass_types::work::{AttemptKey, ReturnReason};
        use windlass_types::{Attempt, JobId, RunId, WorkflowId};
        let directory = tempfile::tempdir().unwrap();
        assert!(undelivered(&directory.path().join("none")).unwrap().is_empty());
        let key = AttemptKey { workflow: WorkflowId(1), job: JobId(2), run: RunId(1), attempt: Attempt(1) };
        let report = Report::Returned { key, why: ReturnReason::WorkerDied };
        let me = Some(Me { worker: WorkerId(5), secret: "hush".into() });
        let own = Identity::of(std::process::id()).unwrap();
        let process = |pid| Process { pid, start_ticks: own.start_ticks, ..Process::default() };
        let homes = [process(own.pid), process(u32::MAX)].map(|agent| {
            let home = Home::create(directory.path()).unwrap();
            let agent = Some(agent);
            home.note(&Notes { url: "http://x".into(), me: me.clone(), agent, ..Notes::default() }).unwrap();
            Journal::at(home.journal()).append(&[Entry::Report(report.clone())]).unwrap();
            home
        });
        let _nothing_to_tell = Home::create(directory.path()).unwrap();
        let mut found = undelivered(directory.path()).unwrap();
        found.sort_by_key(|found| found.is_alive);
        assert_eq!(found.iter().map(|found| found.is_alive).collect::<Vec<_>>(), [false, true]);
        assert!(
            found.iter().all(|found| found.reports == [report.clone()] && found.worker == Some(WorkerId(5)))
        );
        assert!(homes.iter().all(|home| home.journal().exists()));
    }

    #[test]
    fn a_copy_of_the_directory_of_a_living_agent_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let living = Home::create(&directory.path().join("original")).unwrap();
        let own = Identity::own().unwrap();
        let agent = Process { pid: own.pid, start_ticks: own.start_ticks, ..Process::default() };
        living.note(&Notes { boot_id: boot_id().unwrap(), agent: Some(agent), ..Notes::default() }).unwrap();
        let copy = directory.path().join("copy");
        let copied = copy.join(living.directory().file_name().unwrap());
        fs::create_dir_all(&copied).unwrap();
        for name in ["lock", "agent.json"] {
            fs::copy(living.directory().join(name), copied.join(name)).unwrap();
        }
        assert!(Home::abandoned(&copy).is_empty());
        assert!(copied.exists());
    }

    #[test]
    fn only_what_the_dead_left_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let living = Home::create(directory.path()).unwrap();
        let dead = Home::create(directory.path()).unwrap();
        let notes = Notes { url: "http://x".into(), ..Notes::default() };
        dead.note(&notes).unwrap();
        let mode = fs::metadata(dead.directory().join("agent.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let path = dead.directory().to_owned();
        assert!(Home::abandoned(directory.path()).is_empty());
        drop(dead);
        // Another test may start a process at this moment, which has the lock too until it becomes another program.
        let give_up = std::time::Instant::now() + std::time::Duration::from_mins(1);
        let found = loop {
            let found = Home::abandoned(directory.path());
            if !found.is_empty() || std::time::Instant::now() > give_up {
                break found;
            }
            std::thread::yield_now();
        };
        assert_eq!(found.iter().map(Home::directory).collect::<Vec<_>>(), [&path]);
        assert_eq!(found[0].notes().unwrap(), notes);
        for home in found {
            home.remove();
        }
        assert!(!path.exists() && living.directory().exists());
    }
}
