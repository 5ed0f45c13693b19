//! Who may run what in a PostgreSQL database: advisory locks, each on a connection of its own, so that the server releases
//! them when their process dies.
//!
//! A process that was frozen or cut off does not die. Therefore the one that is *the server* also shows signs of life, and
//! has an epoch: whoever takes the lock raises it, and every transaction of a server looks whether it is still its own.
//! A server from which nothing is heard has its connections ended by the one that stands by; when it wakes up, it finds
//! that it is no longer the one and can write nothing.
//!
//! Locks are lost with their connections, which says nothing about their holders. So the signs of life keep others out too,
//! for as long as they are recent.

use super::link::{Common, Link};
use crate::Error;
use crate::db::{Db as _, ToValue};
use crate::error::{Fault, Locked};
use crate::lock::{Held, Holder, Lock, LockGuard, myself};
use crate::pulse::{Pulse, SILENCE, since_boot};
use crate::sql::postgres as sql;
use crate::writer::Session as _;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use windlass_types::{Timestamp, WorkflowId};

/// The numbers of our locks: "Wdls" and what it is, or the next one and the workflow.
const GENERAL: i64 = 0x5764_6c73 << 32;
const WORKFLOWS: i64 = GENERAL + (1 << 32);
const SERVER: i64 = GENERAL;
/// Taken by every transaction that writes.
pub(super) const WRITE: i64 = GENERAL + 1;
const CREATE: i64 = GENERAL + 2;
pub(super) const MIGRATE: i64 = GENERAL + 3;

const fn key_of(WorkflowId(id): WorkflowId) -> i64 {
    WORKFLOWS + (id & 0xffff_ffff)
}

/// How often the server shows that it lives.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Until connections that were ended are gone.
const ENDING: Duration = Duration::from_secs(3);
const ENDING_PAUSE: Duration = Duration::from_millis(50);

/// What is noted of the server.
#[derive(Serialize, Deserialize)]
struct Note {
    #[serde(flatten)]
    holder: Holder,
    /// The name of its connections.
    tag: String,
}

pub(super) fn lock(common: &Arc<Common>, what: Lock, now: Timestamp) -> Result<LockGuard, Error> {
    let link = Link::new(Arc::clone(common));
    let taken = match what {
        Lock::Server => serve(link, now),
        Lock::Workflow(_) if common.epoch.load(Ordering::Acquire) != 0 => return Ok(LockGuard::ours()),
        Lock::Workflow(id) => take_workflow(&link, id, now).map(|()| LockGuard::new(One::new(link, id, now))),
        Lock::Create => wait_to_create(&link).map(|()| LockGuard::new(Creating(Mutex::new(link)))),
    };
    taken.map_err(|fault| fault.explain_at(&common.place.url))
}

pub(super) fn holder(link: &Link, workflow: WorkflowId) -> Result<Option<Holder>, Fault> {
    let key = key_of(workflow);
    match holder_between(link, key, key + 1)? {
        Some(holder) => Ok(Some(holder)),
        None => server_holder(link),
    }
}

pub(super) fn forget(link: &Link, workflow: WorkflowId) -> Result<(), Fault> {
    link.connect()?;
    link.execute(sql::FORGET_HOLDER, [key_of(workflow)])?;
    Ok(())
}

/// Who holds a lock of a range alone.
fn holder_between(link: &Link, first: i64, end: i64) -> Result<Option<Holder>, Fault> {
    let noted: Option<Option<String>> = link.optional(sql::HOLDERS, [first, end], |row| row.get(1))?;
    let Some(noted) = noted else { return Ok(None) };
    let known = noted.and_then(|text| serde_json::from_str(&text).ok());
    // Somebody who cannot be named is never taken for nobody.
    let id = WorkflowId(first - WORKFLOWS);
    known.map(Some).ok_or_else(|| Error::Busy { what: Locked::Workflow(id), holder: None }.into())
}

fn server_holder(link: &Link) -> Result<Option<Holder>, Fault> {
    if !link.exists(sql::HOLDERS, [SERVER, SERVER + 1])? {
        return Ok(None);
    }
    let (_, note, _) = server_row(link)?;
    let named = note.map(|note| note.holder);
    named.map(Some).ok_or_else(|| Error::Busy { what: Locked::Database, holder: None }.into())
}

/// The epoch, who has it, and how long nothing was heard of him, though he could have been.
fn server_row(link: &Link) -> Result<(i64, Option<Note>, Duration), Fault> {
    link.one(sql::SERVER, [] as [i64; 0], |row| {
        let note = row.text(1)?.and_then(|text| serde_json::from_str(text).ok());
        let silence: Option<i64> = row.get(2)?;
        let silence = u64::try_from(silence.unwrap_or(i64::MAX)).unwrap_or_default();
        Ok((row.get(0)?, note, Duration::from_micros(silence)))
    })
}

fn try_lock(link: &Link, sql: &str, key: i64) -> Result<bool, Fault> {
    link.one(sql, [key], |row| row.get::<bool>(0))
}

fn take_workflow(link: &Link, id: WorkflowId, now: Timestamp) -> Result<(), Fault> {
    link.connect()?;
    keep_servers_out(link)?;
    let key = key_of(id);
    if !try_lock(link, sql::TRY_LOCK, key)? {
        let holder = holder_between(link, key, key + 1)?;
        return Err(Error::Busy { what: Locked::Workflow(id), holder }.into());
    }
    let text = serde_json::to_string(&myself(now)).unwrap_or_default();
    link.execute(sql::NOTE_HOLDER, [key.to_value(), text.to_value()])?;
    Ok(())
}

/// No server may begin while a workflow is run here, and none that has merely lost its connection may go on.
fn keep_servers_out(link: &Link) -> Result<(), Fault> {
    loop {
        if !try_lock(link, sql::TRY_LOCK_SHARED, SERVER)? {
            let holder = server_row(link)?.1.map(|note| note.holder);
            return Err(Error::Busy { what: Locked::Database, holder }.into());
        }
        let (epoch, _, silence) = server_row(link)?;
        if silence > SILENCE {
            return depose(link, epoch);
        }
        // A server was heard a moment ago. If it lives it takes its lock again, given the chance; else it falls silent.
        let_go(link);
        std::thread::sleep(ENDING_PAUSE * 4);
    }
}

/// A server that did not say goodbye finds, should it come back, that its epoch is over.
fn depose(link: &Link, epoch: i64) -> Result<(), Fault> {
    if !link.exists(sql::UNSETTLED_SERVER, [epoch])? {
        return Ok(());
    }
    link.begin()?;
    link.execute(sql::DEPOSE_SERVER, [epoch])?;
    link.commit()
}

fn wait_to_create(link: &Link) -> Result<(), Fault> {
    link.connect()?;
    link.one(sql::WAIT_FOR_LOCK, [CREATE], |_| Ok(()))
}

/// A workflow that is held.
struct One {
    link: Mutex<Link>,
    /// Whether the connection has it, as long as it lasts.
    is_held: AtomicBool,
    id: WorkflowId,
    since: Timestamp,
}

impl One {
    fn new(link: Link, id: WorkflowId, since: Timestamp) -> Self {
        Self { link: link.into(), is_held: true.into(), id, since }
    }
}

impl Held for One {
    /// A lock is lost with its connection; then it is taken again, unless somebody else was quicker.
    fn check(&self) -> Result<(), Error> {
        let link = locked(&self.link);
        if self.is_held.load(Ordering::Acquire) && !link.is_lost() {
            return Ok(());
        }
        let again = take_workflow(&link, self.id, self.since);
        self.is_held.store(again.is_ok(), Ordering::Release);
        again.map_err(|fault| {
            // Half of it is of no use, and in the way of others.
            let_go(&link);
            link.explain(fault)
        })
    }
}

impl Drop for One {
    fn drop(&mut self) {
        let_go(&locked(&self.link));
    }
}

struct Creating(Mutex<Link>);

impl Held for Creating {}

impl Drop for Creating {
    fn drop(&mut self) {
        let_go(&locked(&self.0));
    }
}

/// Releases what the connection holds, so that it is free when this returns; merely hung up, it would be a little later.
fn let_go(link: &Link) {
    // Whatever goes wrong, it is released with the connection.
    drop(link.run(sql::LET_GO));
}

/// Becomes the server, in the place of one that is no more if need be.
fn serve(link: Link, now: Timestamp) -> Result<LockGuard, Fault> {
    link.connect()?;
    if !try_lock(&link, sql::TRY_LOCK, SERVER)? {
        replace_silent(&link)?;
    }
    let (_, before, _) = server_row(&link)?;
    let tag = link.common.place.tag.clone();
    if let Some(before) = before.filter(|note| note.tag != tag) {
        // It has lost the lock. What it may still be about to write is not waited for.
        link.all(sql::END_SESSIONS, [before.tag], |_| Ok(()))?;
    }
    let note = Note { holder: myself(now), tag };
    let text = serde_json::to_string(&note).unwrap_or_default();
    let sent = since_boot();
    let epoch: i64 = link.begin().and_then(|()| link.one(sql::NEXT_EPOCH, [text], |row| row.get(0)))?;
    link.commit()?;
    link.common.epoch.store(epoch, Ordering::Release);
    Ok(LockGuard::new(Serving::start(link, epoch, Pulse::beating(sent))?))
}

/// Ends the connections of a server that shows no sign of life, and takes its lock.
fn replace_silent(link: &Link) -> Result<(), Fault> {
    let (_, note, silence) = server_row(link)?;
    let busy = |holder| Fault::from(Error::Busy { what: Locked::Database, holder });
    if !link.exists(sql::HOLDERS, [SERVER, SERVER + 1])? {
        return Err(busy(holder_between(link, WORKFLOWS, WORKFLOWS + (1 << 32)).ok().flatten()));
    }
    let Some(note) = note.filter(|_| silence > SILENCE) else {
        return Err(busy(server_row(link)?.1.map(|note| note.holder)));
    };
    link.all(sql::END_SESSIONS, [note.tag], |_| Ok(()))?;
    let since = Instant::now();
    while !try_lock(link, sql::TRY_LOCK, SERVER)? {
        if since.elapsed() > ENDING {
            return Err(busy(Some(note.holder)));
        }
        std::thread::sleep(ENDING_PAUSE);
    }
    Ok(())
}

/// The lock of the server, and the thread that shows that it lives.
struct Serving {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    common: Arc<Common>,
    pulse: Pulse,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_over: bool,
    is_superseded: bool,
}

impl Serving {
    fn start(link: Link, epoch: i64, pulse: Pulse) -> Result<Self, Fault> {
        let common = Arc::clone(&link.common);
        let shared = Arc::new(Shared { common, pulse, state: Mutex::default(), changed: Condvar::new() });
        let beaten = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("windlass-heartbeat".into())
            .spawn(move || beaten.beat(&link, epoch))
            .map_err(|e| Fault::damage(format!("no thread for the heartbeat: {e}")))?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Shared {
    fn beat(&self, link: &Link, epoch: i64) {
        let mut has_lock = true;
        loop {
            let state = locked(&self.state);
            let waited = self.changed.wait_timeout_while(state, HEARTBEAT, |state| !state.is_over);
            let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if state.is_over {
                return say_goodbye(link, epoch);
            }
            drop(state);
            has_lock &= !link.is_lost();
            let sent = since_boot();
            match show_life(link, epoch, &mut has_lock) {
                Ok(true) => self.pulse.heard(sent),
                Ok(false) => {
                    locked(&self.state).is_superseded = true;
                    return;
                }
                // A database that is away may come back. Whether somebody else has become the server, that one can tell.
                Err(_) => {}
            }
        }
    }
}

/// Whether this is still the epoch. A lock that was lost is taken again as soon as it can be had: what counts is the epoch,
/// and whoever looks at the lock for a moment may be in the way.
fn show_life(link: &Link, epoch: i64, has_lock: &mut bool) -> Result<bool, Fault> {
    link.connect()?;
    if !*has_lock {
        *has_lock = try_lock(link, sql::TRY_LOCK, SERVER)?;
    }
    Ok(link.execute(sql::HEARTBEAT, [epoch])? > 0)
}

/// Nobody need wait for a sign of life of one that has ended.
fn say_goodbye(link: &Link, epoch: i64) {
    // If it cannot be said, others wait a little longer.
    drop(link.execute(sql::LAST_HEARTBEAT, [epoch]));
    let_go(link);
}

impl Held for Serving {
    fn check(&self) -> Result<(), Error> {
        if locked(&self.shared.state).is_superseded {
            return Err(Error::Superseded { url: self.shared.common.place.url.clone() });
        }
        Ok(())
    }

    fn pulse(&self) -> Pulse {
        self.shared.pulse.clone()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        locked(&self.shared.state).is_over = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell.
            drop(thread.join());
        }
        if !locked(&self.shared.state).is_superseded {
            self.shared.common.epoch.store(0, Ordering::Release);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
