//! Where a server runs requests.

use super::run::parse_pair;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use windlass_core::round_plan::PlanSettings;
use windlass_requests::BackendKind;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum RequestBackendName {
    /// On the workers of this server.
    #[default]
    Engine,
    /// As DAGs in an HTCondor pool.
    Htcondor,
}

impl From<RequestBackendName> for BackendKind {
    fn from(name: RequestBackendName) -> Self {
        match name {
            RequestBackendName::Engine => Self::Engine,
            RequestBackendName::Htcondor => Self::Htcondor,
        }
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Where requests run")]
pub(crate) struct RequestBackendArgs {
    /// Backend for new runs of requests; existing runs stay on their backend.
    #[arg(
        id = "serve_backend",
        long = "backend",
        value_enum,
        value_name = "BACKEND",
        default_value = "engine"
    )]
    pub(crate) backend: RequestBackendName,
    /// Maximum number of concurrent nodes of a category; repeat for more. `Processing` (default 5000), `Merge` (100)
    /// and `Cleanup` (50) count per work unit on HTCondor, and per run on workers. `MergeGroup` (10) is the maximum
    /// number of concurrent work units of a run.
    #[arg(long = "throttle", value_name = "CATEGORY=N", value_parser = parse_throttle)]
    pub(crate) throttles: Vec<(String, u64)>,
    /// HTCondor schedd for new runs; repeat for more. Default: the schedd of this machine.
    #[arg(id = "serve_schedd", long = "schedd", value_name = "NAME")]
    pub(crate) schedds: Vec<String>,
    /// Path of windlass on the HTCondor workers. Default: windlass is transferred with each job.
    #[arg(long, value_name = "PATH")]
    pub(crate) worker_program: Option<PathBuf>,
    /// X.509 proxy for jobs on HTCondor.
    #[arg(long, value_name = "FILE")]
    pub(crate) proxy: Option<PathBuf>,
    /// Token for jobs on HTCondor, available to them through BEARER_TOKEN_FILE.
    #[arg(long, value_name = "FILE")]
    pub(crate) token: Option<PathBuf>,
    /// Attribute of all jobs on HTCondor, for example `accounting_group` for accounting; repeat for more.
    #[arg(long = "attribute", value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub(crate) attributes: Vec<(String, String)>,
}

fn parse_throttle(text: &str) -> Result<(String, u64), String> {
    let (category, limit) = text.split_once('=').ok_or("expected CATEGORY=N")?;
    let known = PlanSettings::default().throttles;
    if !known.contains_key(category) {
        let names = known.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        return Err(format!("unknown category `{category}`; the categories are {names}"));
    }
    match limit.parse() {
        Ok(limit) if limit > 0 => Ok((category.to_owned(), limit)),
        _ => Err(format!("`{limit}` is not a positive integer")),
    }
}
