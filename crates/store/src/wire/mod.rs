//! The books over a wire: the part of [`Store`] that may be used from outside, as requests and answers.
//!
//! [`table`] lists the methods, one line each: which of the two sorts of access it needs, to what, and what goes in and
//! out. From it come the [`Request`], what a server does with one ([`Request::answer`]), and [`Remote`], a store whose
//! books are elsewhere. What only an engine does (claims, runs, workers) is not in the table: it cannot be asked for.
//!
//! A request is one JSON object, and so is its answer: `{"ok": …}` or `{"error": …}` ([`error`]). Workflows are created
//! by a stream of lines instead ([`create`]). Times are those of whoever keeps the books.

mod access;
pub mod create;
mod direct;
pub mod error;
mod eyes;
mod remote;
mod table;

pub use access::{Access, Level, MOST_IDS, Subject};
pub use eyes::{Eyes, Masked};
pub use remote::{Remote, Transport};
pub use table::Request;

use crate::Error;
use crate::model::{EventRow, NewUserData, WorkerRow, WorkflowRow};
use error::ErrorOnWire;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use windlass_core::slurm::book::CallCount;
use windlass_types::WorkflowId;
use windlass_types::slurm::Allocation;

/// Whose workflows may be seen; `None` stands for what belongs to no workflow.
pub type MaySee<'a> = &'a dyn Fn(Option<WorkflowId>) -> bool;

/// What is sent back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// For HTTP.
    pub status: u16,
    pub body: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Outcome<T, E> {
    Ok(T),
    Error(E),
}

impl Answer {
    pub fn new<T: Serialize>(result: Result<T, Error>) -> Self {
        let (status, body) = match result {
            Ok(value) => (200, serde_json::to_vec(&Outcome::<_, ()>::Ok(value))),
            Err(error) => {
                let error = ErrorOnWire::from(&error);
                (error.status(), serde_json::to_vec(&Outcome::<(), _>::Error(error)))
            }
        };
        match body {
            Ok(body) => Self { status, body },
            // No row has keys that are not text or numbers that are not finite where that matters.
            Err(error) => {
                let body = format!(r#"{{"error":{{"code":"internal","message":{:?}}}}}"#, error.to_string());
                Self { status: 500, body: body.into_bytes() }
            }
        }
    }
}

/// What stands in the body of an answer.
pub fn read_answer<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    match serde_json::from_slice::<Outcome<T, ErrorOnWire>>(body) {
        Ok(Outcome::Ok(value)) => Ok(value),
        Ok(Outcome::Error(error)) => Err(error.into()),
        Err(error) => Err(ErrorOnWire::not_understood(&error).into()),
    }
}

/// [`NewUserData`] that owns what it says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GivenUserData {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::model::given")]
    pub data: Option<Value>,
    pub is_ephemeral: bool,
}

impl GivenUserData {
    fn new(given: &NewUserData<'_>) -> Self {
        Self { name: given.name.to_owned(), data: given.data.cloned(), is_ephemeral: given.is_ephemeral }
    }

    fn lend(&self) -> NewUserData<'_> {
        NewUserData { name: &self.name, data: self.data.as_ref(), is_ephemeral: self.is_ephemeral }
    }
}

/// Lists that span workflows: what may not be seen is left out.
trait Sift {
    fn sift(self, may_see: MaySee<'_>) -> Self;
}

impl Sift for Vec<WorkflowRow> {
    fn sift(mut self, may_see: MaySee<'_>) -> Self {
        self.retain(|row| may_see(Some(row.id)));
        self
    }
}

impl Sift for Option<WorkflowRow> {
    fn sift(self, may_see: MaySee<'_>) -> Self {
        self.filter(|row| may_see(Some(row.id)))
    }
}

impl Sift for Vec<Allocation> {
    fn sift(mut self, may_see: MaySee<'_>) -> Self {
        self.retain(|row| may_see(Some(row.workflow)));
        self
    }
}

/// How often Slurm was asked says nothing about anybody.
impl Sift for Vec<CallCount> {
    fn sift(self, _: MaySee<'_>) -> Self {
        self
    }
}

impl Sift for Vec<EventRow> {
    fn sift(mut self, may_see: MaySee<'_>) -> Self {
        self.retain(|row| may_see(row.workflow_id));
        self
    }
}

/// The hash of what it quotes to prove who it is is nobody else's business.
impl Sift for Vec<WorkerRow> {
    fn sift(mut self, may_see: MaySee<'_>) -> Self {
        self.retain(|row| may_see(row.worker.workflow));
        for row in &mut self {
            row.worker.secret_hash = None;
        }
        self
    }
}
