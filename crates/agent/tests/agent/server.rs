//! A server that speaks the protocol over HTTP and behaves as the test requires.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};
use windlass_types::worker_messages::{Assignment, AttemptKey, AttemptReport};
use windlass_types::worker_protocol::{
    ActionCommand, ActionReport, ExchangeReply, RegistrationReply, StopCommand, WorkerExchange,
    WorkerRegistration, WorkflowSetup,
};
use windlass_types::{WorkerId, WorkflowId};

/// A timeout that is reached only if a process hangs.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) url: String,
    inner: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) lease: Duration,
    /// All connections are closed.
    pub(crate) is_away: bool,
    pub(crate) introductions: Vec<WorkerRegistration>,
    pub(crate) exchanges: Vec<WorkerExchange>,
    /// All workers have to register again; attempts not on the list are lost.
    pub(crate) has_forgotten: bool,
    pub(crate) keeps: Vec<AttemptKey>,
    /// For the next exchange that can carry them.
    pub(crate) over: Vec<WorkflowId>,
    pub(crate) workflows: Vec<WorkflowSetup>,
    pub(crate) assignments: Vec<Assignment>,
    pub(crate) stops: Vec<StopCommand>,
    pub(crate) actions: Vec<ActionCommand>,
    pub(crate) drain: bool,
    pub(crate) dismissed: bool,
    /// In the order of arrival, each once.
    pub(crate) reports: Vec<AttemptReport>,
    pub(crate) action_reports: Vec<ActionReport>,
    pub(crate) has_left: bool,
    next_worker: i64,
    workers: HashMap<WorkerId, Worker>,
    connections: Vec<TcpStream>,
}

#[derive(Default)]
struct Worker {
    secret: String,
    newest: u64,
    answers: BTreeMap<u64, ExchangeReply>,
}

impl State {
    fn has_news(&self) -> bool {
        !self.assignments.is_empty()
            || !self.stops.is_empty()
            || !self.actions.is_empty()
            || self.drain
            || self.dismissed
    }
}

impl Server {
    pub(crate) fn start(lease: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = State { lease, ..State::default() };
        let server = Self {
            url: format!("http://127.0.0.1:{port}"),
            inner: Arc::new((Mutex::new(state), Condvar::new())),
        };
        let own = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                own.state().connections.push(stream.try_clone().unwrap());
                let own = own.clone();
                thread::spawn(move || own.serve(stream));
            }
        });
        server
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.inner.0.lock().unwrap()
    }

    /// Changes the state, and wakes all waiting calls.
    pub(crate) fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.inner.1.notify_all();
    }

    pub(crate) fn give(&self, assignments: impl IntoIterator<Item = Assignment>) {
        self.change(|state| state.assignments.extend(assignments));
    }

    /// Closes all connections, and every new one, until it is back.
    pub(crate) fn go_away(&self) {
        self.change(|state| {
            state.is_away = true;
            for stream in state.connections.drain(..) {
                stream.shutdown(Shutdown::Both).ok();
            }
        });
    }

    /// Knows the workers of an earlier server, as one with the same database does.
    pub(crate) fn continue_after(&self, earlier: &Self) {
        let mut earlier = earlier.state();
        let (workers, next_worker) = (std::mem::take(&mut earlier.workers), earlier.next_worker);
        drop(earlier);
        self.change(|state| (state.workers, state.next_worker) = (workers, next_worker));
    }

    pub(crate) fn come_back(&self) {
        self.change(|state| state.is_away = false);
    }

    /// Waits until the condition holds.
    pub(crate) fn until<T>(&self, what: &str, mut found: impl FnMut(&mut State) -> Option<T>) -> T {
        let give_up = Instant::now() + WAIT_TIMEOUT;
        let mut state = self.state();
        loop {
            if let Some(value) = found(&mut state) {
                return value;
            }
            assert!(
                Instant::now() < give_up,
                "timeout while waiting for {what}; reports: {:?}",
                state.reports
            );
            state = self.inner.1.wait_timeout(state, Duration::from_millis(50)).unwrap().0;
        }
    }

    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut writer = stream;
        while let Some((path, body)) = read_request(&mut reader) {
            if self.state().is_away {
                writer.shutdown(Shutdown::Both).ok();
                return;
            }
            let (status, answer) = self.answer(&path, &body);
            if self.state().is_away || write_answer(&mut writer, status, &answer).is_none() {
                return;
            }
        }
    }

    fn answer(&self, path: &str, body: &[u8]) -> (u16, Value) {
        if path == "/api/v1/workers" {
            return (200, json!(self.introduce(parse(body))));
        }
        assert!(path.ends_with("/exchange"), "{path}");
        match self.exchange(parse(body)) {
            Some(answer) => (200, json!(answer)),
            None => (409, json!({"status": 409, "code": "unknown_worker", "detail": "register again"})),
        }
    }

    fn introduce(&self, who: WorkerRegistration) -> RegistrationReply {
        let mut state = self.state();
        let known = who.before.as_ref().filter(|before| {
            state.workers.get(&before.worker).is_some_and(|worker| worker.secret == before.secret)
        });
        let held = who.before.as_ref().map(|before| before.held.clone()).unwrap_or_default();
        let actions = who.before.as_ref().map(|before| before.actions.clone()).unwrap_or_default();
        let (worker, lost, lost_actions) = if let Some(before) = known {
            let lost = held.into_iter().filter(|key| !state.keeps.contains(key)).collect();
            (before.worker, lost, Vec::new())
        } else {
            state.next_worker += 1;
            (WorkerId(state.next_worker), held, actions)
        };
        let secret = format!("secret-{worker}");
        state.workers.insert(worker, Worker { secret: secret.clone(), ..Worker::default() });
        state.has_forgotten = false;
        state.introductions.push(who);
        let lease = state.lease;
        drop(state);
        self.inner.1.notify_all();
        RegistrationReply { worker, secret, lease, lost, lost_actions }
    }

    fn exchange(&self, exchange: WorkerExchange) -> Option<ExchangeReply> {
        let (worker, number) = (exchange.worker, exchange.number);
        let deadline = Instant::now() + exchange.wait;
        let mut state = self.state();
        if state.has_forgotten || state.workers.get(&worker)?.secret != exchange.secret {
            return None;
        }
        if let Some(answer) = state.workers[&worker].answers.get(&number) {
            return Some(answer.clone());
        }
        let is_new = number > state.workers[&worker].newest;
        if is_new {
            state.workers.get_mut(&worker)?.newest = number;
        }
        state.reports.extend(exchange.reports.iter().cloned());
        state.action_reports.extend(exchange.actions.iter().cloned());
        state.has_left |= exchange.leaving;
        let brings_news = !exchange.draining;
        state.exchanges.push(exchange);
        self.inner.1.notify_all();
        loop {
            if state.has_forgotten || state.is_away {
                return None;
            }
            let is_newest = state.workers.get(&worker)?.newest == number;
            if !is_newest || Instant::now() >= deadline || (brings_news && state.has_news()) {
                let answer = take_news(&mut state, number, is_newest && brings_news);
                state.workers.get_mut(&worker)?.answers.insert(number, answer.clone());
                return Some(answer);
            }
            state = self.inner.1.wait_timeout(state, Duration::from_millis(20)).unwrap().0;
        }
    }
}

fn take_news(state: &mut State, number: u64, is_newest: bool) -> ExchangeReply {
    let mut answer = ExchangeReply { number, ..ExchangeReply::default() };
    if is_newest {
        answer.over = std::mem::take(&mut state.over);
        answer.workflows = std::mem::take(&mut state.workflows);
        answer.assignments = std::mem::take(&mut state.assignments);
        answer.stops = std::mem::take(&mut state.stops);
        answer.actions = std::mem::take(&mut state.actions);
        answer.drain = std::mem::take(&mut state.drain);
        answer.dismissed = state.dismissed;
    }
    answer
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> T {
    serde_json::from_slice(body).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(body)))
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((path, body))
}

fn write_answer(writer: &mut TcpStream, status: u16, answer: &Value) -> Option<()> {
    let body = answer.to_string();
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    writer.write_all(head.as_bytes()).ok()?;
    writer.write_all(body.as_bytes()).ok()
}

/// The only workflow of most tests.
pub(crate) const WORKFLOW: WorkflowId = WorkflowId(3);
