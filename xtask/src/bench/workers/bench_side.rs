//! A server with its workers: windlass or torc.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::http::Http;
use super::options::Options;

/// Where a worker finds its server, and what it is to be.
pub(in crate::bench) struct Seat<'a> {
    pub(in crate::bench) origin: String,
    pub(in crate::bench) token: Option<&'a str>,
    pub(in crate::bench) slots: usize,
    pub(in crate::bench) number: usize,
}

pub(in crate::bench) trait Side {
    fn name(&self) -> String;

    /// How many of the jobs it is given.
    fn share(&self, options: &Options) -> usize {
        options.jobs
    }

    /// Serves at `127.0.0.1` and this port.
    fn serve(&self, port: u16) -> Command;

    /// What a client has to show; an error means that the server is not up yet. `None`: nothing.
    fn token(&self) -> Result<Option<String>>;

    /// Creates a workflow and makes its jobs ready.
    fn submit(&self, http: &Http, token: Option<&str>, spec: &Path) -> Result<i64>;

    /// A worker that is there before any workflow is, where there is such a thing, or else one of this workflow.
    fn worker(&self, seat: &Seat<'_>, workflow: Option<i64>) -> Option<Command>;

    /// The process of a database that stands beside the server.
    fn database(&self) -> Result<Option<u32>> {
        Ok(None)
    }

    /// Where it says what is wrong, beside its own output.
    fn logs(&self) -> Vec<PathBuf> {
        Vec::new()
    }
}
