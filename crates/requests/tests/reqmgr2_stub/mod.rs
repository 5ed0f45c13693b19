//! A stub of ReqMgr2 over HTTP: a thread on loopback that answers as the real server does. Other crates use this
//! file by `#[path]`.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A status, headers (one per line), a body.
#[derive(Clone, Debug)]
pub(crate) struct StubResponse(pub(crate) u16, pub(crate) &'static str, pub(crate) String);

#[derive(Default)]
struct StubState {
    documents: BTreeMap<String, Value>,
    /// Answers for the next requests, used before the default.
    first: Vec<StubResponse>,
    /// The heads of all requests.
    heard: Vec<String>,
}

/// Listens until the process ends.
#[derive(Clone)]
pub(crate) struct Reqmgr2Stub {
    pub(crate) url: String,
    inside: Arc<Mutex<StubState>>,
}

impl Reqmgr2Stub {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/reqmgr2", listener.local_addr().unwrap());
        let stub = Self { url, inside: Arc::default() };
        let inside = Arc::clone(&stub.inside);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // The client may have disconnected.
                drop(answer(stream, &inside));
            }
        });
        stub
    }

    pub(crate) fn has(&self, name: &str, document: &Value) -> &Self {
        self.inside.lock().unwrap().documents.insert(name.to_owned(), document.clone());
        self
    }

    /// Sets the answers to the next requests, in this order.
    pub(crate) fn says_first(&self, said: impl IntoIterator<Item = StubResponse>) -> &Self {
        self.inside.lock().unwrap().first = said.into_iter().collect();
        self
    }

    pub(crate) fn heard(&self) -> Vec<String> {
        self.inside.lock().unwrap().heard.clone()
    }
}

fn answer(mut stream: TcpStream, inside: &Mutex<StubState>) -> std::io::Result<()> {
    let mut head = String::new();
    let mut reader = BufReader::new(stream.try_clone()?);
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    let StubResponse(status, headers, body) = {
        let mut inside = inside.lock().unwrap();
        inside.heard.push(head.clone());
        if inside.first.is_empty() { known(&inside.documents, &head) } else { inside.first.remove(0) }
    };
    let length = body.len();
    let fields = format!("content-length: {length}\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(format!("HTTP/1.1 {status} X\r\n{fields}{body}").as_bytes())
}

fn known(documents: &BTreeMap<String, Value>, head: &str) -> StubResponse {
    let name = head.strip_prefix("GET /reqmgr2/data/request?name=").and_then(|rest| rest.split(' ').next());
    let Some(name) = name else { return StubResponse(404, "", "<html>".to_owned()) };
    let result: Vec<Value> =
        documents.get(name).map(|document| json!({name: document})).into_iter().collect();
    StubResponse(200, "content-type: application/json\r\n", json!({"result": result}).to_string())
}
