//! A server with its workers: windlass or torc.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::http::Http;
use super::options::Options;

/// The address of the server for a worker, and the worker's settings.
pub(in crate::bench) struct WorkerSettings<'a> {
    pub(in crate::bench) origin: String,
    pub(in crate::bench) token: Option<&'a str>,
    pub(in crate::bench) slots: usize,
    pub(in crate::bench) number: usize,
}

pub(in crate::bench) trait ServerUnderTest {
    fn name(&self) -> String;

    /// The number of its jobs.
    fn share(&self, options: &Options) -> usize {
        options.jobs
    }

    /// The command that serves at `127.0.0.1` and this port.
    fn serve(&self, port: u16) -> Command;

    /// The token for clients, or `None` if none is needed. An error means that the server is not up yet.
    fn token(&self) -> Result<Option<String>>;

    /// Creates a workflow and makes its jobs ready.
    fn submit(&self, http: &Http, token: Option<&str>, spec: &Path) -> Result<i64>;

    /// A worker that starts before any workflow exists, where that is possible, else a worker of this workflow.
    fn worker(&self, worker_settings: &WorkerSettings<'_>, workflow: Option<i64>) -> Option<Command>;

    /// The process of a separate database, if there is one.
    fn database(&self) -> Result<Option<u32>> {
        Ok(None)
    }

    /// Its log files, besides its output.
    fn logs(&self) -> Vec<PathBuf> {
        Vec::new()
    }
}
