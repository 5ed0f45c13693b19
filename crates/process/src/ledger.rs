//! The worker's record of the processes it starts, so that a later process can tell which claims had started
//! and end the processes still alive.
//!
//! A file of fixed-size records, written before and after each start and reused in a circle; the record of a
//! running process is never reused. Jobs and strays have a circle each, so that a job with many strays does not
//! displace records of others. Not synced: the file must survive the death of processes, and after a power
//! failure no process lives.

use crate::process_identity::{self, FileIdentity};
use crate::session;
use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use windlass_types::worker_messages::AttemptKey;
use windlass_types::{Attempt, JobId, RunId, WorkflowId};

const MAGIC_BYTES: &[u8; 8] = b"WLEDGER1";
const HEADER_SIZE: usize = 512;
const RECORD_SIZE: usize = 64;
/// The offset in the header of the identity of the database file, or zeros.
const DATABASE_OFFSET: usize = HEADER_SIZE - 16;
const MAX_PATH_LENGTH: usize = DATABASE_OFFSET - 32;

/// How many starts are remembered. The engine must not have more claims than this that are neither settled nor
/// returned, or it could not tell which of them had started.
pub const MAX_RECORDS: usize = 8192;
/// How many strays can be known at a time.
const MAX_STRAYS: usize = 2048;

#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    #[error("cannot {action} the ledger {path}: {source}")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{path} is not a ledger of this version")]
    NotALedger { path: PathBuf },
    #[error("more {what} run than the ledger has records")]
    Full { what: &'static str },
}

/// The subject of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerSubject {
    Attempt(AttemptKey),
    /// A process that left its job's process tree and has no mark in its environment.
    Stray,
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerEntry {
    pub subject: LedgerSubject,
    /// `None`: about to start when the worker died; it may or may not have started.
    pub pid: Option<Pid>,
    /// In boot ticks: it started between the two (the second is zero if unknown).
    pub start_window: (u64, u64),
}

impl LedgerEntry {
    /// Whether a process with this pid and start time is the recorded one.
    pub fn matches_process(&self, pid: Pid, start_ticks: u64) -> bool {
        let (earliest, latest) = self.start_window;
        self.pid == Some(pid) && (earliest..=latest).contains(&start_ticks)
    }
}

/// A whole ledger, read after its writer died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerContents {
    /// The session of the worker and of all processes that did not leave it.
    pub session: i32,
    /// The worker's cgroup, if it had one.
    pub cgroup: Option<PathBuf>,
    /// The database file whose jobs it ran, if any.
    pub database: Option<FileIdentity>,
    pub entries: Vec<LedgerEntry>,
}

impl LedgerContents {
    pub fn read(path: &Path) -> Result<Self, LedgerError> {
        let bytes = fs::read(path).map_err(|source| LedgerError::Io {
            action: "read",
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&bytes).ok_or_else(|| LedgerError::NotALedger { path: path.to_owned() })
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (header, records) = bytes.split_at_checked(HEADER_SIZE)?;
        if !header.starts_with(MAGIC_BYTES) || records.len() % RECORD_SIZE != 0 {
            return None;
        }
        let length = read_u64(header, 16) as usize;
        let path = header.get(32..32 + length)?;
        let mut numbered: Vec<(u64, LedgerEntry)> =
            records.chunks_exact(RECORD_SIZE).filter_map(decode_record).collect();
        numbered.sort_by_key(|(number, _)| *number);
        Some(Self {
            session: read_u64(header, 8) as i32,
            database: Some(FileIdentity {
                device: read_u64(header, DATABASE_OFFSET),
                inode: read_u64(header, DATABASE_OFFSET + 8),
            })
            .filter(|database| database.inode > 0),
            cgroup: (length > 0).then(|| PathBuf::from(std::ffi::OsString::from_vec(path.to_vec()))),
            entries: numbered.into_iter().map(|(_, entry)| entry).collect(),
        })
    }

    /// The attempts that have or may have started.
    pub fn started_attempts(&self) -> Vec<AttemptKey> {
        self.entries
            .iter()
            .filter_map(|entry| match entry.subject {
                LedgerSubject::Attempt(key) => Some(key),
                LedgerSubject::Stray => None,
            })
            .collect()
    }
}

/// The ledger as its writer uses it. Shared by all slots.
#[derive(Debug)]
pub struct ProcessLedger {
    file: File,
    path: PathBuf,
    records: Mutex<LedgerRecords>,
}

#[derive(Debug)]
struct LedgerRecords {
    attempts: RecordRing,
    strays: RecordRing,
    /// The number of records ever taken, which gives their order.
    taken_count: u64,
}

/// A range of records, reused in a circle.
#[derive(Debug)]
struct RecordRing {
    what: &'static str,
    /// The index of its first record.
    first: usize,
    next: usize,
    is_busy: Vec<bool>,
}

impl RecordRing {
    fn new(what: &'static str, first: usize, length: usize) -> Self {
        Self { what, first, next: 0, is_busy: vec![false; length] }
    }

    fn take_index(&mut self) -> Result<usize, LedgerError> {
        let length = self.is_busy.len();
        let free = (0..length).map(|step| (self.next + step) % length).find(|index| !self.is_busy[*index]);
        let index = free.ok_or(LedgerError::Full { what: self.what })?;
        self.is_busy[index] = true;
        self.next = (index + 1) % length;
        Ok(self.first + index)
    }

    fn return_index(&mut self, index: usize) {
        self.is_busy[index - self.first] = false;
    }
}

/// A record in use. Released with [`ProcessLedger::close_record`] when its process has ended.
#[derive(Debug)]
pub struct OpenLedgerRecord {
    index: usize,
    number: u64,
    key: AttemptKey,
    earliest: u64,
}

/// The record of a stray. Released with [`ProcessLedger::close_stray`] when the process is gone.
#[derive(Debug)]
pub struct StrayProcessRecord {
    index: usize,
}

impl ProcessLedger {
    /// Creates a new, empty ledger in a file that did not exist before. Its space is allocated now, so that a
    /// full disk cannot prevent the record of a job.
    pub fn create(
        path: &Path,
        cgroup: Option<&Path>,
        database: Option<FileIdentity>,
    ) -> Result<Self, LedgerError> {
        let failed = |source| LedgerError::Io { action: "create", path: path.to_owned(), source };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)).map_err(io::Error::from);
        let file = File::from(file.map_err(failed)?);
        file.write_all_at(&vec![0; HEADER_SIZE + (MAX_RECORDS + MAX_STRAYS) * RECORD_SIZE], 0)
            .map_err(failed)?;
        file.write_all_at(&encode_header(cgroup, database), 0).map_err(failed)?;
        let records = Mutex::new(LedgerRecords {
            attempts: RecordRing::new("jobs", 0, MAX_RECORDS),
            strays: RecordRing::new("strays", MAX_RECORDS, MAX_STRAYS),
            taken_count: 0,
        });
        Ok(Self { file, path: path.to_owned(), records })
    }

    /// Records that this attempt is about to start.
    pub fn open_record(&self, key: AttemptKey) -> Result<OpenLedgerRecord, LedgerError> {
        let (index, number) = self.take_record(|records| &mut records.attempts)?;
        let open = OpenLedgerRecord { index, number, key, earliest: process_identity::boot_ticks() };
        match self.write_attempt(&open, None) {
            Ok(()) => Ok(open),
            Err(error) => {
                self.close_record(open);
                Err(error)
            }
        }
    }

    /// Records its pid.
    pub fn record_started(&self, open: &OpenLedgerRecord, pid: Pid) -> Result<(), LedgerError> {
        self.write_attempt(open, Some(pid))
    }

    /// Removes the record of an attempt that did not start.
    pub fn discard_record(&self, open: OpenLedgerRecord) {
        // If this fails, recovery takes it for an attempt that may have started, which is safe.
        self.file.write_all_at(&[0; RECORD_SIZE], record_offset(open.index)).ok();
        self.close_record(open);
    }

    /// Releases the record of an ended process. It stays until the circle reuses it.
    #[expect(clippy::needless_pass_by_value, reason = "a closed record must not be used again")]
    pub fn close_record(&self, open: OpenLedgerRecord) {
        self.lock_records().attempts.return_index(open.index);
    }

    /// Records a process that could not be found again by its mark.
    pub fn record_stray(&self, pid: Pid, start_ticks: u64) -> Result<StrayProcessRecord, LedgerError> {
        let (index, number) = self.take_record(|records| &mut records.strays)?;
        let entry = LedgerEntry {
            subject: LedgerSubject::Stray,
            pid: Some(pid),
            start_window: (start_ticks, start_ticks),
        };
        let note = StrayProcessRecord { index };
        match self.write_record(index, number, &entry) {
            Ok(()) => Ok(note),
            Err(error) => {
                self.close_stray(note);
                Err(error)
            }
        }
    }

    /// Releases the record of a stray that is gone. It stays until the circle reuses it.
    #[expect(clippy::needless_pass_by_value, reason = "a closed record must not be used again")]
    pub fn close_stray(&self, note: StrayProcessRecord) {
        self.lock_records().strays.return_index(note.index);
    }

    fn take_record(
        &self,
        of: impl FnOnce(&mut LedgerRecords) -> &mut RecordRing,
    ) -> Result<(usize, u64), LedgerError> {
        let mut records = self.lock_records();
        let index = of(&mut records).take_index()?;
        records.taken_count += 1;
        Ok((index, records.taken_count))
    }

    fn lock_records(&self) -> MutexGuard<'_, LedgerRecords> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_attempt(&self, open: &OpenLedgerRecord, pid: Option<Pid>) -> Result<(), LedgerError> {
        let latest = if pid.is_some() { process_identity::boot_ticks() } else { 0 };
        let entry = LedgerEntry {
            subject: LedgerSubject::Attempt(open.key),
            pid,
            start_window: (open.earliest, latest),
        };
        self.write_record(open.index, open.number, &entry)
    }

    fn write_record(&self, index: usize, number: u64, entry: &LedgerEntry) -> Result<(), LedgerError> {
        self.file
            .write_all_at(&encode_record(number, entry), record_offset(index))
            .map_err(|source| LedgerError::Io { action: "write", path: self.path.clone(), source })
    }
}

const fn record_offset(index: usize) -> u64 {
    (HEADER_SIZE + index * RECORD_SIZE) as u64
}

fn encode_header(cgroup: Option<&Path>, database: Option<FileIdentity>) -> [u8; HEADER_SIZE] {
    let mut bytes = [0; HEADER_SIZE];
    bytes[..8].copy_from_slice(MAGIC_BYTES);
    put_u64(&mut bytes, 8, i64::from(session::current_session()).cast_unsigned());
    let path = cgroup.map_or(&b""[..], |path| path.as_os_str().as_bytes());
    // A path that is too long is left out: ensure_dead works without it.
    if path.len() <= MAX_PATH_LENGTH {
        put_u64(&mut bytes, 16, path.len() as u64);
        bytes[32..32 + path.len()].copy_from_slice(path);
    }
    if let Some(FileIdentity { device, inode }) = database {
        put_u64(&mut bytes, DATABASE_OFFSET, device);
        put_u64(&mut bytes, DATABASE_OFFSET + 8, inode);
    }
    bytes
}

fn encode_record(number: u64, entry: &LedgerEntry) -> [u8; RECORD_SIZE] {
    let (key, attempt) = match entry.subject {
        LedgerSubject::Attempt(key) => ([key.workflow.0, key.job.0, key.run.0], key.attempt.0),
        // Attempts count from 1.
        LedgerSubject::Stray => ([0; 3], 0),
    };
    let pid = entry.pid.map_or(0, |pid| pid.as_raw_nonzero().get());
    let mut bytes = [0; RECORD_SIZE];
    put_u64(&mut bytes, 0, number);
    for (at, id) in [8, 16, 24].into_iter().zip(key) {
        put_u64(&mut bytes, at, id.cast_unsigned());
    }
    put_u64(&mut bytes, 32, u64::from(attempt));
    put_u64(&mut bytes, 40, u64::from(pid.cast_unsigned()));
    put_u64(&mut bytes, 48, entry.start_window.0);
    put_u64(&mut bytes, 56, entry.start_window.1);
    bytes
}

/// `None` for a record that was never written, or was removed.
fn decode_record(bytes: &[u8]) -> Option<(u64, LedgerEntry)> {
    let number = read_u64(bytes, 0);
    let id = |at| read_u64(bytes, at).cast_signed();
    let subject = match read_u64(bytes, 32) as u32 {
        0 => LedgerSubject::Stray,
        attempt => LedgerSubject::Attempt(AttemptKey {
            workflow: WorkflowId(id(8)),
            job: JobId(id(16)),
            run: RunId(id(24)),
            attempt: Attempt(attempt),
        }),
    };
    let pid = Pid::from_raw(read_u64(bytes, 40) as i32);
    let window = (read_u64(bytes, 48), read_u64(bytes, 56));
    (number > 0).then_some((number, LedgerEntry { subject, pid, start_window: window }))
}

fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn read_u64(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn key(job: i64) -> AttemptKey {
        AttemptKey { workflow: WorkflowId(1), job: JobId(job), run: RunId(2), attempt: Attempt(3) }
    }

    fn place() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger");
        (directory, path)
    }

    #[test]
    fn records_are_read_back() {
        let (_directory, path) = place();
        let database = FileIdentity { device: 7, inode: 9 };
        let ledger =
            ProcessLedger::create(&path, Some(Path::new("/sys/fs/cgroup/x")), Some(database)).unwrap();
        let pid = rustix::process::getpid();
        let first = ledger.open_record(key(1)).unwrap();
        ledger.record_started(&first, pid).unwrap();
        let second = ledger.open_record(key(2)).unwrap();
        let third = ledger.open_record(key(3)).unwrap();
        ledger.discard_record(third);
        ledger.record_stray(pid, 77).unwrap();
        ledger.close_record(second);

        let contents = LedgerContents::read(&path).unwrap();
        assert_eq!(contents.cgroup.as_deref(), Some(Path::new("/sys/fs/cgroup/x")));
        assert_eq!((contents.session, contents.database), (session::current_session(), Some(database)));
        assert_eq!(contents.started_attempts(), [key(1), key(2)]);
        let [started, unknown, stray] = contents.entries[..] else { panic!("{:?}", contents.entries) };
        assert!(
            started.matches_process(pid, started.start_window.0)
                && !started.matches_process(pid, started.start_window.1 + 1)
        );
        assert_eq!(unknown.pid, None);
        assert!(stray.matches_process(pid, 77) && stray.subject == LedgerSubject::Stray);
    }

    #[test]
    fn the_record_of_a_running_job_is_not_reused() {
        let (_directory, path) = place();
        let ledger = ProcessLedger::create(&path, None, None).unwrap();
        let long = ledger.open_record(key(-1)).unwrap();
        ledger.record_started(&long, rustix::process::getpid()).unwrap();
        for job in 0..2 * MAX_RECORDS as i64 {
            let short = ledger.open_record(key(job)).unwrap();
            ledger.close_record(short);
        }
        let started = LedgerContents::read(&path).unwrap().started_attempts();
        assert_eq!(started.len(), MAX_RECORDS);
        assert_eq!(
            (started.first(), started.last()),
            (Some(&key(-1)), Some(&key(2 * MAX_RECORDS as i64 - 1)))
        );
    }

    #[test]
    fn stray_records_stay_until_closed_and_displace_no_jobs() {
        let (_directory, path) = place();
        let ledger = ProcessLedger::create(&path, None, None).unwrap();
        let pid = rustix::process::getpid();
        let first = ledger.record_stray(pid, 1).unwrap();
        let more: Vec<StrayProcessRecord> =
            (2..=MAX_STRAYS as u64).map(|start| ledger.record_stray(pid, start).unwrap()).collect();
        assert!(matches!(ledger.record_stray(pid, 9999), Err(LedgerError::Full { what: "strays" })));
        for note in more {
            ledger.close_stray(note);
        }
        for job in 0..2 * MAX_RECORDS as i64 {
            let short = ledger.open_record(key(job)).unwrap();
            ledger.close_record(short);
        }
        for start in 10_000..10_000 + 2 * MAX_STRAYS as u64 {
            ledger.close_stray(ledger.record_stray(pid, start).unwrap());
        }
        let contents = LedgerContents::read(&path).unwrap();
        assert_eq!(contents.started_attempts().len(), MAX_RECORDS);
        assert!(
            contents.entries.iter().any(|entry| entry.matches_process(pid, 1)),
            "the stray that still runs"
        );
        assert!(!contents.entries.iter().any(|entry| entry.matches_process(pid, 2)), "a stray that is gone");
        ledger.close_stray(first);
    }

    #[test]
    fn a_ledger_is_private_and_overwrites_no_file() {
        let (directory, path) = place();
        ProcessLedger::create(&path, None, None).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let target = directory.path().join("target");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        for taken in [&path, &link] {
            let error = ProcessLedger::create(taken, None, None).unwrap_err();
            let LedgerError::Io { source, .. } = &error else { panic!("{error}") };
            assert_eq!(source.kind(), io::ErrorKind::AlreadyExists);
        }
        assert!(!target.exists());
    }

    #[test]
    fn another_file_is_not_taken_for_a_ledger() {
        let (_directory, path) = place();
        assert!(matches!(LedgerContents::read(&path), Err(LedgerError::Io { .. })));
        for text in [&b""[..], b"WLEDGER1", &[0; HEADER_SIZE + RECORD_SIZE]] {
            fs::write(&path, text).unwrap();
            assert!(matches!(LedgerContents::read(&path), Err(LedgerError::NotALedger { .. })));
        }
    }
}
