//! The store over RPC: the remotely callable part of [`Store`], as calls and replies.
//!
//! [`call_table`] lists the methods, one line each, with required access, arguments and result. The
//! [`StoreCall`], its execution on a server ([`StoreCall::execute`]), and [`RpcStore`], a store on a server,
//! are generated from it. Methods that only an engine uses (claims, runs, workers) are not in the table and
//! cannot be called.
//!
//! A call is one JSON object, and so is its reply: `{"ok": …}` or `{"error": …}` ([`rpc_error`]). Workflows are
//! created by a stream of lines instead ([`workflow_upload`]). Timestamps are those of the server.

mod call_access;
mod call_table;
mod direct_access;
mod redaction;
pub mod rpc_error;
mod rpc_store;
pub mod workflow_upload;

pub use call_access::{AccessLevel, CallAccess, CallSubject, MAX_IDS_PER_CALL};
pub use call_table::StoreCall;
pub use redaction::{SecretNamesLookup, Viewer};
pub use rpc_store::{RpcStore, RpcTransport};

use crate::StoreError;
use crate::model::{EventRow, NewUserData, WorkerRow, WorkflowRow};
use rpc_error::WireError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass_core::slurm::allocation_rows::SlurmCallCount;
use windlass_types::WorkflowId;
use windlass_types::slurm::Allocation;

/// Whether a workflow is visible; `None` stands for objects without a workflow.
pub type VisibilityCheck<'a> = &'a dyn Fn(Option<WorkflowId>) -> bool;

/// The reply to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreReply {
    /// HTTP status.
    pub status: u16,
    pub body: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ReplyBody<T, E> {
    Ok(T),
    Error(E),
}

impl StoreReply {
    pub fn new<T: Serialize>(result: Result<T, StoreError>) -> Self {
        let (status, body) = match result {
            Ok(value) => (200, serde_json::to_vec(&ReplyBody::<_, ()>::Ok(value))),
            Err(error) => {
                let error = WireError::from(&error);
                (error.http_status(), serde_json::to_vec(&ReplyBody::<(), _>::Error(error)))
            }
        };
        match body {
            Ok(body) => Self { status, body },
            // Rows never have non-text keys or non-finite numbers, so this cannot fail.
            Err(error) => {
                let body = format!(r#"{{"error":{{"code":"internal","message":{:?}}}}}"#, error.to_string());
                Self { status: 500, body: body.into_bytes() }
            }
        }
    }
}

/// The body of a reply.
pub fn parse_reply<T: DeserializeOwned>(body: &[u8]) -> Result<T, StoreError> {
    match serde_json::from_slice::<ReplyBody<T, WireError>>(body) {
        Ok(ReplyBody::Ok(value)) => Ok(value),
        Ok(ReplyBody::Error(error)) => Err(error.into()),
        Err(error) => Err(WireError::not_understood(&error).into()),
    }
}

/// An owned [`NewUserData`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OwnedUserData {
    pub name: String,
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "crate::model::deserialize_present"
    )]
    pub data: Option<Value>,
    pub is_ephemeral: bool,
}

impl OwnedUserData {
    fn new(given: &NewUserData<'_>) -> Self {
        Self { name: given.name.to_owned(), data: given.data.cloned(), is_ephemeral: given.is_ephemeral }
    }

    fn as_new(&self) -> NewUserData<'_> {
        NewUserData { name: &self.name, data: self.data.as_ref(), is_ephemeral: self.is_ephemeral }
    }
}

/// Lists over several workflows: rows that the viewer may not see are removed.
trait FilterVisible {
    fn filter_visible(self, may_see: VisibilityCheck<'_>) -> Self;
}

impl FilterVisible for Vec<WorkflowRow> {
    fn filter_visible(mut self, may_see: VisibilityCheck<'_>) -> Self {
        self.retain(|row| may_see(Some(row.id)));
        self
    }
}

impl FilterVisible for Option<WorkflowRow> {
    fn filter_visible(self, may_see: VisibilityCheck<'_>) -> Self {
        self.filter(|row| may_see(Some(row.id)))
    }
}

impl FilterVisible for Vec<Allocation> {
    fn filter_visible(mut self, may_see: VisibilityCheck<'_>) -> Self {
        self.retain(|row| may_see(Some(row.workflow)));
        self
    }
}

/// Slurm call counters contain no private data.
impl FilterVisible for Vec<SlurmCallCount> {
    fn filter_visible(self, _: VisibilityCheck<'_>) -> Self {
        self
    }
}

impl FilterVisible for Vec<EventRow> {
    fn filter_visible(mut self, may_see: VisibilityCheck<'_>) -> Self {
        self.retain(|row| may_see(row.workflow_id));
        self
    }
}

/// The hash of a worker's secret is never disclosed.
impl FilterVisible for Vec<WorkerRow> {
    fn filter_visible(mut self, may_see: VisibilityCheck<'_>) -> Self {
        self.retain(|row| may_see(row.worker.workflow));
        for row in &mut self {
            row.worker.secret_hash = None;
        }
        self
    }
}
