//! Locks in a PostgreSQL database: advisory locks, each on a connection of its own, so that PostgreSQL releases
//! them when their process ends.
//!
//! A process that is frozen or disconnected does not end. Therefore the *server* also sends heartbeats and has
//! an epoch, which is incremented with each acquisition of its lock and checked by every transaction of a
//! server. A standby terminates the connections of a server without heartbeats; when that server resumes, it
//! finds its epoch superseded and cannot write.
//!
//! Locks are lost with their connections even if their holders live. So recent heartbeats exclude other servers
//! too.

use super::connection::{PgConnection, PgStoreState};
use crate::StoreError;
use crate::db::{SqlConnection as _, ToSqlValue};
use crate::error::{LockedObject, SqlError};
use crate::leader_lease::{LEASE_DURATION, LeaderLease, time_since_boot};
use crate::lock::{HeldLock, LockGuard, LockHolder, LockScope, current_process};
use crate::sql::postgres as sql;
use crate::writer::WriteSession as _;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use windlass_types::{Timestamp, WorkflowId};

/// Keys of the locks: "Wdls" and a number, or its successor and the workflow.
const LOCK_KEY_BASE: i64 = 0x5764_6c73 << 32;
const WORKFLOW_LOCK_KEY_BASE: i64 = LOCK_KEY_BASE + (1 << 32);
const SERVER_LOCK_KEY: i64 = LOCK_KEY_BASE;
/// Held by every write transaction.
pub(super) const WRITE_LOCK_KEY: i64 = LOCK_KEY_BASE + 1;
const CREATE_LOCK_KEY: i64 = LOCK_KEY_BASE + 2;
pub(super) const MIGRATE_LOCK_KEY: i64 = LOCK_KEY_BASE + 3;

const fn workflow_lock_key(WorkflowId(id): WorkflowId) -> i64 {
    WORKFLOW_LOCK_KEY_BASE + (id & 0xffff_ffff)
}

/// Heartbeat interval of the server.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout for terminated connections to disappear.
const SESSION_END_TIMEOUT: Duration = Duration::from_secs(3);
const SESSION_END_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The record of a server.
#[derive(Serialize, Deserialize)]
struct ServerNote {
    #[serde(flatten)]
    holder: LockHolder,
    /// Application name of its connections.
    tag: String,
}

pub(super) fn acquire_lock(
    common: &Arc<PgStoreState>,
    what: LockScope,
    now: Timestamp,
) -> Result<LockGuard, StoreError> {
    let link = PgConnection::new(Arc::clone(common));
    let taken = match what {
        LockScope::Server => acquire_server_lock(link, now),
        LockScope::Workflow(_) if common.epoch.load(Ordering::Acquire) != 0 => {
            return Ok(LockGuard::implied());
        }
        LockScope::Workflow(id) => {
            lock_workflow(&link, id, now).map(|()| LockGuard::new(PgWorkflowLock::new(link, id, now)))
        }
        LockScope::Create => {
            wait_for_create_lock(&link).map(|()| LockGuard::new(PgCreateLock(Mutex::new(link))))
        }
    };
    taken.map_err(|fault| fault.into_store_error_at(&common.target.url))
}

pub(super) fn find_holder(link: &PgConnection, workflow: WorkflowId) -> Result<Option<LockHolder>, SqlError> {
    let key = workflow_lock_key(workflow);
    match find_holder_in_range(link, key, key + 1)? {
        Some(holder) => Ok(Some(holder)),
        None => find_server_holder(link),
    }
}

pub(super) fn forget_holder(link: &PgConnection, workflow: WorkflowId) -> Result<(), SqlError> {
    link.connect()?;
    link.execute(sql::DELETE_LOCK_HOLDER, [workflow_lock_key(workflow)])?;
    Ok(())
}

/// Returns the exclusive holder of a lock in a range.
fn find_holder_in_range(link: &PgConnection, first: i64, end: i64) -> Result<Option<LockHolder>, SqlError> {
    let noted: Option<Option<String>> =
        link.query_optional(sql::LOCK_HOLDERS, [first, end], |row| row.get(1))?;
    let Some(noted) = noted else { return Ok(None) };
    let known = noted.and_then(|text| serde_json::from_str(&text).ok());
    // A holder that cannot be identified still counts as a holder.
    let id = WorkflowId(first - WORKFLOW_LOCK_KEY_BASE);
    known.map(Some).ok_or_else(|| StoreError::Busy { what: LockedObject::Workflow(id), holder: None }.into())
}

fn find_server_holder(link: &PgConnection) -> Result<Option<LockHolder>, SqlError> {
    if !link.exists(sql::LOCK_HOLDERS, [SERVER_LOCK_KEY, SERVER_LOCK_KEY + 1])? {
        return Ok(None);
    }
    let (_, note, _) = load_server_row(link)?;
    let named = note.map(|note| note.holder);
    named.map(Some).ok_or_else(|| StoreError::Busy { what: LockedObject::Database, holder: None }.into())
}

/// Returns the epoch, its holder, and the time without heartbeats during which the database was reachable.
fn load_server_row(link: &PgConnection) -> Result<(i64, Option<ServerNote>, Duration), SqlError> {
    link.query_one(sql::SERVER_STATE, [] as [i64; 0], |row| {
        let note = row.get_text(1)?.and_then(|text| serde_json::from_str(text).ok());
        let silence: Option<i64> = row.get(2)?;
        let silence = u64::try_from(silence.unwrap_or(i64::MAX)).unwrap_or_default();
        Ok((row.get(0)?, note, Duration::from_micros(silence)))
    })
}

fn try_lock(link: &PgConnection, sql: &str, key: i64) -> Result<bool, SqlError> {
    link.query_one(sql, [key], |row| row.get::<bool>(0))
}

fn lock_workflow(link: &PgConnection, id: WorkflowId, now: Timestamp) -> Result<(), SqlError> {
    link.connect()?;
    block_servers(link)?;
    let key = workflow_lock_key(id);
    if !try_lock(link, sql::TRY_LOCK, key)? {
        let holder = find_holder_in_range(link, key, key + 1)?;
        return Err(StoreError::Busy { what: LockedObject::Workflow(id), holder }.into());
    }
    let text = serde_json::to_string(&current_process(now)).unwrap_or_default();
    link.execute(sql::RECORD_LOCK_HOLDER, [key.to_value(), text.to_value()])?;
    Ok(())
}

/// Excludes servers while a workflow runs here, including one that has only lost its connection.
fn block_servers(link: &PgConnection) -> Result<(), SqlError> {
    loop {
        if !try_lock(link, sql::TRY_LOCK_SHARED, SERVER_LOCK_KEY)? {
            let holder = load_server_row(link)?.1.map(|note| note.holder);
            return Err(StoreError::Busy { what: LockedObject::Database, holder }.into());
        }
        let (epoch, _, silence) = load_server_row(link)?;
        if silence > LEASE_DURATION {
            return supersede_server(link, epoch);
        }
        // The last heartbeat is recent. If the server lives, it reacquires its lock now; otherwise its
        // heartbeats expire.
        unlock_all(link);
        std::thread::sleep(SESSION_END_POLL_INTERVAL * 4);
    }
}

/// A server that did not shut down cleanly finds its epoch superseded if it resumes.
fn supersede_server(link: &PgConnection, epoch: i64) -> Result<(), SqlError> {
    if !link.exists(sql::SERVER_WITH_HEARTBEAT, [epoch])? {
        return Ok(());
    }
    link.begin()?;
    link.execute(sql::SUPERSEDE_SERVER, [epoch])?;
    link.commit()
}

fn wait_for_create_lock(link: &PgConnection) -> Result<(), SqlError> {
    link.connect()?;
    link.query_one(sql::WAIT_FOR_LOCK, [CREATE_LOCK_KEY], |_| Ok(()))
}

/// The lock of a workflow.
struct PgWorkflowLock {
    connection: Mutex<PgConnection>,
    /// Whether the connection holds the lock, for as long as it lasts.
    is_held: AtomicBool,
    id: WorkflowId,
    since: Timestamp,
}

impl PgWorkflowLock {
    fn new(link: PgConnection, id: WorkflowId, since: Timestamp) -> Self {
        Self { connection: link.into(), is_held: true.into(), id, since }
    }
}

impl HeldLock for PgWorkflowLock {
    /// A lock is lost with its connection; it is then acquired again, unless another process was faster.
    fn check(&self) -> Result<(), StoreError> {
        let link = lock_mutex(&self.connection);
        if self.is_held.load(Ordering::Acquire) && !link.is_connection_lost() {
            return Ok(());
        }
        let again = lock_workflow(&link, self.id, self.since);
        self.is_held.store(again.is_ok(), Ordering::Release);
        again.map_err(|fault| {
            // A partial lock is useless and blocks others.
            unlock_all(&link);
            link.explain_error(fault)
        })
    }
}

impl Drop for PgWorkflowLock {
    fn drop(&mut self) {
        unlock_all(&lock_mutex(&self.connection));
    }
}

struct PgCreateLock(Mutex<PgConnection>);

impl HeldLock for PgCreateLock {}

impl Drop for PgCreateLock {
    fn drop(&mut self) {
        unlock_all(&lock_mutex(&self.0));
    }
}

/// Releases the locks of the connection synchronously; after a mere disconnect they would be released a little
/// later.
fn unlock_all(link: &PgConnection) {
    // On any error they are released with the connection.
    drop(link.run_statement(sql::UNLOCK_ALL));
}

/// Becomes the server, if necessary in place of one that has stopped.
fn acquire_server_lock(link: PgConnection, now: Timestamp) -> Result<LockGuard, SqlError> {
    link.connect()?;
    if !try_lock(&link, sql::TRY_LOCK, SERVER_LOCK_KEY)? {
        replace_silent_server(&link)?;
    }
    let (_, before, _) = load_server_row(&link)?;
    let tag = link.store_state.target.tag.clone();
    if let Some(before) = before.filter(|note| note.tag != tag) {
        // It has lost the lock. Writes that it may still send are not waited for.
        link.query_all(sql::END_SESSIONS, [before.tag], |_| Ok(()))?;
    }
    let note = ServerNote { holder: current_process(now), tag };
    let text = serde_json::to_string(&note).unwrap_or_default();
    let sent = time_since_boot();
    link.begin()?;
    let epoch: i64 = link.query_one(sql::NEXT_EPOCH, [text], |row| row.get(0))?;
    link.delete_old_markers()?;
    link.commit()?;
    link.store_state.epoch.store(epoch, Ordering::Release);
    Ok(LockGuard::new(PgServerLock::start(link, epoch, LeaderLease::held_since(sent))?))
}

/// Terminates the connections of a server without heartbeats and takes its lock.
fn replace_silent_server(link: &PgConnection) -> Result<(), SqlError> {
    let (_, note, silence) = load_server_row(link)?;
    let busy = |holder| SqlError::from(StoreError::Busy { what: LockedObject::Database, holder });
    if !link.exists(sql::LOCK_HOLDERS, [SERVER_LOCK_KEY, SERVER_LOCK_KEY + 1])? {
        return Err(busy(
            find_holder_in_range(link, WORKFLOW_LOCK_KEY_BASE, WORKFLOW_LOCK_KEY_BASE + (1 << 32))
                .ok()
                .flatten(),
        ));
    }
    let Some(note) = note.filter(|_| silence > LEASE_DURATION) else {
        return Err(busy(load_server_row(link)?.1.map(|note| note.holder)));
    };
    link.query_all(sql::END_SESSIONS, [note.tag], |_| Ok(()))?;
    let since = Instant::now();
    while !try_lock(link, sql::TRY_LOCK, SERVER_LOCK_KEY)? {
        if since.elapsed() > SESSION_END_TIMEOUT {
            return Err(busy(Some(note.holder)));
        }
        std::thread::sleep(SESSION_END_POLL_INTERVAL);
    }
    Ok(())
}

/// The server's lock with its heartbeat thread.
struct PgServerLock {
    shared: Arc<PgServerLockShared>,
    thread: Option<JoinHandle<()>>,
}

struct PgServerLockShared {
    common: Arc<PgStoreState>,
    lease: LeaderLease,
    state: Mutex<PgServerLockState>,
    changed: Condvar,
}

#[derive(Default)]
struct PgServerLockState {
    is_over: bool,
    is_superseded: bool,
}

impl PgServerLock {
    fn start(link: PgConnection, epoch: i64, pulse: LeaderLease) -> Result<Self, SqlError> {
        let common = Arc::clone(&link.store_state);
        let shared = Arc::new(PgServerLockShared {
            common,
            lease: pulse,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let heartbeat_state = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("windlass-heartbeat".into())
            .spawn(move || heartbeat_state.run_heartbeat(&link, epoch))
            .map_err(|e| SqlError::damage(format!("cannot start the heartbeat thread: {e}")))?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl PgServerLockShared {
    fn run_heartbeat(&self, link: &PgConnection, epoch: i64) {
        let mut has_lock = true;
        loop {
            let state = lock_mutex(&self.state);
            let waited = self.changed.wait_timeout_while(state, HEARTBEAT_INTERVAL, |state| !state.is_over);
            let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if state.is_over {
                return clear_heartbeat(link, epoch);
            }
            drop(state);
            has_lock &= !link.is_connection_lost();
            let sent = time_since_boot();
            match send_heartbeat(link, epoch, &mut has_lock) {
                Ok(true) => self.lease.renew(sent),
                Ok(false) => {
                    lock_mutex(&self.state).is_superseded = true;
                    return;
                }
                // The database may become reachable again and then tell whether another process has become the
                // server.
                Err(_) => {}
            }
        }
    }
}

/// Whether this is still the current epoch. A lost lock is acquired again when possible: only the epoch is
/// decisive, because processes that query the lock may hold it briefly.
fn send_heartbeat(link: &PgConnection, epoch: i64, has_lock: &mut bool) -> Result<bool, SqlError> {
    link.connect()?;
    if !*has_lock {
        *has_lock = try_lock(link, sql::TRY_LOCK, SERVER_LOCK_KEY)?;
    }
    Ok(link.execute(sql::HEARTBEAT, [epoch])? > 0)
}

/// Removes the heartbeat of a server that ends, so that others need not wait.
fn clear_heartbeat(link: &PgConnection, epoch: i64) {
    // If this fails, others wait a little longer.
    drop(link.execute(sql::CLEAR_HEARTBEAT, [epoch]));
    unlock_all(link);
}

impl HeldLock for PgServerLock {
    fn check(&self) -> Result<(), StoreError> {
        if lock_mutex(&self.shared.state).is_superseded {
            return Err(StoreError::Superseded { url: self.shared.common.target.url.clone() });
        }
        Ok(())
    }

    fn leader_lease(&self) -> LeaderLease {
        self.shared.lease.clone()
    }
}

impl Drop for PgServerLock {
    fn drop(&mut self) {
        lock_mutex(&self.shared.state).is_over = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // Its result is irrelevant.
            drop(thread.join());
        }
        if !lock_mutex(&self.shared.state).is_superseded {
            self.shared.common.epoch.store(0, Ordering::Release);
        }
    }
}

fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
