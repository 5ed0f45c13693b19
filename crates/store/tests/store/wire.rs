//! The books over a wire that does not leave the process: what goes in and comes out passes through JSON, and everything
//! must be as if it did not.

use crate::kit::Fixture;
use std::io::{Cursor, Read};
use windlass_store::sqlite::SqliteStore;
use windlass_store::wire::{Answer, Eyes, Remote, Request, Transport, create};
use windlass_store::{Error, Location, Store};
use windlass_types::Timestamp;

struct InProcess(SqliteStore);

impl Transport for InProcess {
    fn location(&self) -> Location {
        Location::Server("http://localhost".to_owned())
    }

    fn call(&self, request: &Request, now: Timestamp) -> Result<Vec<u8>, Error> {
        let sent = serde_json::to_string(request).unwrap();
        let request: Request = serde_json::from_str(&sent).unwrap();
        Ok(request.answer(&self.0, now, Eyes::ALL).body)
    }

    fn create(&self, mut lines: Box<dyn Read + Send>, now: Timestamp) -> Result<Vec<u8>, Error> {
        let mut spool = Vec::new();
        lines.read_to_end(&mut spool).unwrap();
        Ok(Answer::new(create::create(&self.0, Cursor::new(spool), None, now)).body)
    }

    fn direct(&self) -> Option<&dyn Store> {
        Some(&self.0)
    }
}

pub(crate) fn empty_store() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::create(dir.path().join("windlass.db")).unwrap().store;
    Fixture { store: Box::new(Remote::new(InProcess(store))), _keep: Box::new(dir) }
}
