//! RPC within the process: arguments and results pass through JSON, and everything must be as without it.

use crate::kit::Fixture;
use std::io::{Cursor, Read};
use windlass_store::rpc::{RpcStore, RpcTransport, StoreCall, StoreReply, Viewer, workflow_upload};
use windlass_store::sqlite::SqliteStore;
use windlass_store::{Store, StoreError, StoreLocation};
use windlass_types::Timestamp;

struct InProcess(SqliteStore);

impl RpcTransport for InProcess {
    fn location(&self) -> StoreLocation {
        StoreLocation::Server("http://localhost".to_owned())
    }

    fn call(&self, request: &StoreCall, now: Timestamp) -> Result<Vec<u8>, StoreError> {
        let sent = serde_json::to_string(request).unwrap();
        let request: StoreCall = serde_json::from_str(&sent).unwrap();
        Ok(request.execute(&self.0, now, Viewer::ALL).body)
    }

    fn send_new_workflow(
        &self,
        mut lines: Box<dyn Read + Send>,
        now: Timestamp,
    ) -> Result<Vec<u8>, StoreError> {
        let mut spool = Vec::new();
        lines.read_to_end(&mut spool).unwrap();
        Ok(StoreReply::new(workflow_upload::create_from_lines(&self.0, Cursor::new(spool), None, now)).body)
    }

    fn direct_store(&self) -> Option<&dyn Store> {
        Some(&self.0)
    }
}

pub(crate) fn empty_store() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::create(dir.path().join("windlass.db")).unwrap().store;
    Fixture { store: Box::new(RpcStore::new(InProcess(store))), _keep: Box::new(dir) }
}
