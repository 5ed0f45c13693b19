//! Tests with a real ReqMgr2, which `tools/reqmgr2-server install` downloads once.
#![expect(clippy::unwrap_used, reason = "the lint does not recognize this crate as a test")]

#[path = "../../../store/tests/free_port/mod.rs"]
mod free_port;

use free_port::free_port;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use windlass_core::requests::document::{DocumentContext, parse_request};
use windlass_requests::{Reqmgr2Client, Reqmgr2Error};

/// A server with a directory and ports of its own, deleted at the end of the test.
struct Server {
    dir: tempfile::TempDir,
    port: u16,
    couch: u16,
}

impl Server {
    fn start() -> Self {
        let server = Self { dir: tempfile::tempdir().unwrap(), port: free_port(), couch: free_port() };
        assert!(server.tool("start"), "is it installed? `tools/reqmgr2-server install`");
        server
    }

    fn tool(&self, verb: &str) -> bool {
        let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/reqmgr2-server");
        let status = Command::new(tool)
            .arg("-d")
            .arg(self.dir.path())
            .arg(verb)
            .env("REQMGR2_PORT", self.port.to_string())
            .env("REQMGR2_COUCH_PORT", self.couch.to_string())
            .status();
        status.unwrap().success()
    }

    /// Adds this request to its database.
    fn has(&self, name: &str, document: &Value) {
        drop(rustls::crypto::ring::default_provider().install_default());
        let url = format!("http://127.0.0.1:{}/reqmgr_workload_cache/{name}", self.couch);
        let put = reqwest::blocking::Client::new().put(url).json(document).send().unwrap();
        assert!(put.status().is_success(), "{put:?}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tool("stop");
    }
}

#[test]
fn request_is_fetched_from_real_reqmgr2() {
    let answer = include_str!("../../../core/tests/data/reqmgr/answer.json");
    let answer: Value = serde_json::from_str(answer).unwrap();
    let (name, document) = answer["result"][0].as_object().unwrap().iter().next().unwrap();
    let server = Server::start();
    server.has(name, document);
    let limit = Duration::from_secs(20);
    let reqmgr2 = Reqmgr2Client {
        timeout: limit,
        ..Reqmgr2Client::from_url(format!("http://127.0.0.1:{}/reqmgr2", server.port))
    };
    let fetched = reqmgr2.fetch_request(name).unwrap();
    assert_eq!(fetched["RequestName"], json!(name));
    let context = DocumentContext { requestor: "me", name_suffix: "x", max_memory_per_core_mb: 3000 };
    let request = parse_request(&fetched, &context).unwrap();
    assert_eq!(request, parse_request(document, &context).unwrap(), "as it was stored");
    assert_eq!((&request.request_name, request.requestor.as_str()), (name, "wms2"));

    let unknown = reqmgr2.fetch_request("unknown_261116_010203_1").unwrap_err();
    assert!(unknown.to_string().contains("has no request of that name"), "{unknown}");
    let elsewhere =
        Reqmgr2Client::from_url(format!("http://127.0.0.1:{}", server.port)).fetch_request(name).unwrap_err();
    assert!(elsewhere.to_string().contains("answers 404"), "{elsewhere}");
    assert!(server.tool("stop"));
    let away = Reqmgr2Client { timeout: Duration::from_secs(1), ..reqmgr2 }.fetch_request(name).unwrap_err();
    assert!(matches!(away, Reqmgr2Error::Unreachable { .. }), "{away}");
}
