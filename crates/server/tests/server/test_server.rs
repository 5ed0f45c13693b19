//! A server with its own database, and helpers to send correct and incorrect requests.

use reqwest::Method;
use reqwest::blocking::{Client, RequestBuilder};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windlass_server::{ApiServer, RunningServer, ServeOptions};
use windlass_store::StoreDatabase;
use windlass_store::model::{EventSeverity, NewEvent};
use windlass_store::sqlite::SqliteStore;
use windlass_types::SystemClock;

pub(crate) struct Fixture {
    pub(crate) server: RunningServer,
    pub(crate) store: Arc<dyn StoreDatabase>,
    pub(crate) client: Client,
    pub(crate) dir: tempfile::TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut ServeOptions)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let opened = SqliteStore::open_or_create(dir.path().join("store.db")).unwrap();
        Self::start(Arc::new(opened.store), dir, change)
    }

    /// On an existing database.
    pub(crate) fn on(store: Arc<dyn StoreDatabase>, change: impl FnOnce(&mut ServeOptions)) -> Self {
        Self::start(store, tempfile::tempdir().unwrap(), change)
    }

    fn start(
        store: Arc<dyn StoreDatabase>,
        dir: tempfile::TempDir,
        change: impl FnOnce(&mut ServeOptions),
    ) -> Self {
        // A second test in this process finds it installed.
        drop(rustls::crypto::ring::default_provider().install_default());
        let mut options = ServeOptions::default();
        options.limits.rate = 0;
        options.requests.directory = Some(dir.path().to_owned());
        change(&mut options);
        let server = ApiServer::start(options, Arc::clone(&store)).unwrap();
        let client = Client::builder().timeout(Duration::from_mins(1)).build().unwrap();
        Self { server, store, client, dir }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.server.url)).bearer_auth(&self.server.token)
    }

    pub(crate) fn get(&self, path: &str) -> RequestBuilder {
        self.request(Method::GET, path)
    }

    pub(crate) fn post(&self, path: &str) -> RequestBuilder {
        self.request(Method::POST, path)
    }

    pub(crate) fn address(&self) -> &str {
        self.server.url.strip_prefix("http://").unwrap()
    }

    /// A raw connection.
    pub(crate) fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address()).unwrap()
    }

    /// The value of a metric without labels.
    pub(crate) fn figure(&self, name: &str) -> Option<u64> {
        let page = self.get("/metrics").send().unwrap().text().unwrap();
        page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }

    pub(crate) fn note(&self, category: &str) {
        self.store.add_event(&event(category, EventSeverity::Info), SystemClock.now()).unwrap();
    }
}

pub(crate) fn event(category: &str, severity: EventSeverity) -> NewEvent {
    NewEvent {
        workflow: None,
        job: None,
        severity,
        category: category.to_owned(),
        message: format!("about {category}"),
        data: None,
    }
}

/// The bytes of a request, as a client would send them.
pub(crate) fn wire(fixture: &Fixture, method: &str, path: &str, body: &str) -> String {
    wire_as(fixture, &fixture.server.token, method, path, body)
}

/// The same with another token.
pub(crate) fn wire_as(fixture: &Fixture, token: &str, method: &str, path: &str, body: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        fixture.address(),
        token,
        body.len()
    )
}

/// Sends this and disconnects at once, ignoring the response.
pub(crate) fn say_and_hang_up(fixture: &Fixture, bytes: &[u8]) {
    let mut stream = fixture.connect();
    // The server may reject the request before it has read all of it.
    drop(stream.write_all(bytes));
    drop(stream.shutdown(Shutdown::Both));
}

/// Reads until the other end closes.
pub(crate) fn read_all(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let mut text = Vec::new();
    stream.read_to_end(&mut text).unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

/// Waits for a condition that must become true.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !holds() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
