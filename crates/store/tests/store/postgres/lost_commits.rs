//! Connections that are lost during a commit, cut by a proxy that detects the `COMMIT`.

use super::database;
use crate::kit::{NOW, claim, commit, counts, create, new_worker, worker};
use crate::postgres_server::Server;
use std::io::{self, Read, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use windlass_store::model::WorkerFilter;
use windlass_store::postgres::PgStore;
use windlass_store::sqlite::OpenMode;
use windlass_store::{Store as _, StoreError, WorkerStore as _};
use windlass_types::JobStatus;

/// The fault injected at the next `COMMIT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InjectedFault {
    /// It does not arrive, and both sides are disconnected.
    Before,
    /// It arrives and is applied; the response is lost.
    After,
    /// It does not arrive; the database considers the connection alive.
    Unnoticed,
}

/// A proxy between a store and its database.
#[derive(Clone, Default)]
struct DatabaseProxy(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    next: Option<InjectedFault>,
    /// Number of connections to reject after a fault.
    away: u32,
    turned_away: u32,
    /// Open connections to the database.
    kept: Vec<UnixStream>,
}

impl DatabaseProxy {
    /// Listens on a socket for stores with this directory as host.
    fn start(directory: &Path, real: &Path) -> Self {
        let this = Self::default();
        let (listener, real) = (UnixListener::bind(socket(directory)).unwrap(), socket(real));
        let shared = this.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (between, real) = (shared.clone(), real.clone());
                std::thread::spawn(move || between.serve(&client.unwrap(), &real));
            }
        });
        this
    }

    fn inject(&self, injected_fault: InjectedFault, away: u32) {
        let mut state = self.0.lock().unwrap();
        (state.next, state.away, state.turned_away) = (Some(injected_fault), away, 0);
    }

    /// Accepts connections again.
    fn admit(&self) {
        self.0.lock().unwrap().away = 0;
    }

    /// Number of rejected connections; and whether the fault was injected.
    fn was_injected(&self) -> u32 {
        let state = self.0.lock().unwrap();
        assert_eq!(state.next, None);
        state.turned_away
    }

    fn is_away(&self) -> bool {
        let mut state = self.0.lock().unwrap();
        let away = state.next.is_none() && state.turned_away < state.away;
        state.turned_away += u32::from(away);
        away
    }

    fn serve(&self, client: &UnixStream, real: &Path) {
        if self.is_away() {
            return;
        }
        let server = UnixStream::connect(real).unwrap();
        let answers = (server.try_clone().unwrap(), client.try_clone().unwrap());
        std::thread::spawn(move || {
            let (mut server, mut client) = answers;
            // Either end closes the other one.
            drop(io::copy(&mut server, &mut client));
            drop(client.shutdown(Shutdown::Both));
        });
        let injected_fault = self.pass_on(client, &server);
        // From here on the store receives nothing.
        drop(client.shutdown(Shutdown::Both));
        match injected_fault {
            Ok(Some(InjectedFault::Unnoticed)) => self.0.lock().unwrap().kept.push(server),
            Ok(Some(InjectedFault::After)) => drop(send(&server, b'Q', b"COMMIT\0")),
            Ok(Some(InjectedFault::Before) | None) | Err(_) => drop(server.shutdown(Shutdown::Both)),
        }
    }

    /// Until one of them disconnects, or the fault is injected.
    fn pass_on(&self, mut client: &UnixStream, mut server: &UnixStream) -> io::Result<Option<InjectedFault>> {
        let greeting = body(client)?;
        server.write_all(&(greeting.len() as u32 + 4).to_be_bytes())?;
        server.write_all(&greeting)?;
        loop {
            let mut kind = [0];
            if client.read(&mut kind)? == 0 {
                return Ok(None);
            }
            let message = body(client)?;
            if kind == [b'Q'] && message == b"COMMIT\0" {
                let injected_fault = self.0.lock().unwrap().next.take();
                if injected_fault.is_some() {
                    return Ok(injected_fault);
                }
            }
            send(server, kind[0], &message)?;
        }
    }
}

fn socket(directory: &Path) -> std::path::PathBuf {
    directory.join(".s.PGSQL.5432")
}

fn body(mut from: &UnixStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
    from.read_exact(&mut body)?;
    Ok(body)
}

fn send(mut to: &UnixStream, kind: u8, body: &[u8]) -> io::Result<()> {
    to.write_all(&[kind])?;
    to.write_all(&(body.len() as u32 + 4).to_be_bytes())?;
    to.write_all(body)
}

/// A store behind the proxy.
struct FaultTest {
    store: PgStore,
    between: DatabaseProxy,
    _directory: tempfile::TempDir,
    _database: crate::postgres_server::Database,
}

fn fault_test() -> FaultTest {
    let database = database();
    let directory = tempfile::tempdir().unwrap();
    let (start, real) =
        database.url().split_once("?host=").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let between = DatabaseProxy::start(directory.path(), Path::new(&real));
    let url = format!("{start}?host={}", directory.path().display());
    let store = PgStore::open(&url, OpenMode::ReadWrite).unwrap();
    FaultTest { store, between, _directory: directory, _database: database }
}

/// Every way of writing in turn: single requests, changes, and large operations.
#[test]
fn commit_with_lost_response_is_recognized() {
    let FaultTest { store, between, .. } = &fault_test();
    let (workflow, jobs) = create(store, 2);
    let workers = || store.workers(&WorkerFilter::default()).unwrap().len();

    between.inject(InjectedFault::After, 0);
    let first = worker(store, workflow);
    between.was_injected();
    assert_eq!(workers(), 1, "applied once, and reported to the caller");

    between.inject(InjectedFault::After, 3);
    commit(store, workflow, vec![claim(jobs[0], 1, first)]).unwrap();
    assert_eq!(between.was_injected(), 3, "there was no response for a while");
    assert_eq!(counts(store, workflow).get(JobStatus::Pending), 1);

    between.inject(InjectedFault::After, 0);
    let (other, _) = create(store, 5);
    between.was_injected();
    assert_eq!(store.workflows().unwrap().iter().map(|row| row.id).collect::<Vec<_>>(), [workflow, other]);
    // Own commits are not counted as commits of others.
    let before = store.foreign_commit_count(true).unwrap();
    between.inject(InjectedFault::After, 0);
    worker(store, workflow);
    between.was_injected();
    assert_eq!(store.foreign_commit_count(true).unwrap(), before);
}

#[test]
fn uncommitted_write_fails_and_can_be_repeated() {
    for injected_fault in [InjectedFault::Before, InjectedFault::Unnoticed] {
        let FaultTest { store, between, .. } = &fault_test();
        let (workflow, jobs) = create(store, 2);
        let first = worker(store, workflow);
        let transient = |error: StoreError| assert!(error.is_transient(), "{injected_fault:?}: {error}");

        between.inject(injected_fault, 2);
        transient(store.add_worker(&new_worker(workflow), NOW).unwrap_err());
        assert_eq!(between.was_injected(), 2);
        assert_eq!(store.workers(&WorkerFilter::default()).unwrap().len(), 1, "{injected_fault:?}");

        let claims = || vec![claim(jobs[0], 1, first)];
        between.inject(injected_fault, 0);
        transient(commit(store, workflow, claims()).unwrap_err());
        between.was_injected();
        assert_eq!(counts(store, workflow).get(JobStatus::Pending), 0, "{injected_fault:?}");
        commit(store, workflow, claims()).unwrap();
        let again = commit(store, workflow, claims()).unwrap_err();
        assert!(matches!(again, StoreError::Conflict { .. }), "what was applied is rejected: {again}");
        assert_eq!(counts(store, workflow).get(JobStatus::Pending), 1);
    }
}

/// What was not written to the log before a crash is lost, and its transaction id is given out again.
#[test]
fn lost_commit_is_not_mistaken_for_a_later_transaction_with_its_id() {
    let (directory, front) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let database = Server::at(directory.path());
    // Nothing is written to the log before a commit.
    database.start("listen_addresses = ''\nsynchronous_commit = on\nwal_writer_delay = 10s\n");
    let between = DatabaseProxy::start(front.path(), directory.path());
    let open = |host: &Path| {
        let url = format!("postgres://{}@/postgres?host={}", database.user, host.display());
        PgStore::open(&url, OpenMode::ReadWrite).unwrap()
    };
    let (store, other) = (open(front.path()), open(directory.path()));
    let (workflow, jobs) = create(&store, 1);
    let first = worker(&store, workflow);
    between.inject(InjectedFault::Unnoticed, u32::MAX);
    std::thread::scope(|scope| {
        let claim = scope.spawn(|| commit(&store, workflow, vec![claim(jobs[0], 1, first)]));
        while between.0.lock().unwrap().next.is_some() {
            std::thread::yield_now();
        }
        database.restart();
        worker(&other, workflow);
        between.admit();
        let error = claim.join().unwrap().unwrap_err();
        assert!(error.is_transient(), "{error}");
    });
    assert_eq!(counts(&other, workflow).get(JobStatus::Pending), 0);
}
