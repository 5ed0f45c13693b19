//! Where a server has requests run.

use super::run::parse_pair;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use windlass_core::round_plan::PlanSettings;
use windlass_requests::BackendKind;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum RequestBackendName {
    /// On workers of this server.
    #[default]
    Engine,
    /// As DAGs of an HTCondor pool.
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
    /// Where new runs of requests go; those that exist stay where they are.
    #[arg(
        id = "serve_backend",
        long = "backend",
        value_enum,
        value_name = "BACKEND",
        default_value = "engine"
    )]
    pub(crate) backend: RequestBackendName,
    /// Limit of nodes that run at once: `Processing`, `Merge` and `Cleanup` in each work unit on HTCondor and in each run
    /// on workers, `MergeGroup` for work units of a run. Defaults: 5000, 100, 50 and 10. May be given several times.
    #[arg(long = "throttle", value_name = "CATEGORY=N", value_parser = parse_throttle)]
    pub(crate) throttles: Vec<(String, u64)>,
    /// A schedd of HTCondor that new runs may go to; give it again for more. Without it: the one of this machine.
    #[arg(id = "serve_schedd", long = "schedd", value_name = "NAME")]
    pub(crate) schedds: Vec<String>,
    /// Where HTCondor's workers have windlass. Without it, it is sent along with each job.
    #[arg(long, value_name = "PATH")]
    pub(crate) worker_program: Option<PathBuf>,
    /// An X.509 proxy for jobs on HTCondor.
    #[arg(long, value_name = "FILE")]
    pub(crate) proxy: Option<PathBuf>,
    /// A token for jobs on HTCondor, which find it by BEARER_TOKEN_FILE.
    #[arg(long, value_name = "FILE")]
    pub(crate) token: Option<PathBuf>,
    /// An attribute for all jobs on HTCondor, for accounting. `accounting_group` is HTCondor's own.
    #[arg(long = "attribute", value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub(crate) attributes: Vec<(String, String)>,
}

fn parse_throttle(text: &str) -> Result<(String, u64), String> {
    let (category, limit) = text.split_once('=').ok_or("it is not CATEGORY=N")?;
    let known = PlanSettings::default().throttles;
    if !known.contains_key(category) {
        let names = known.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        return Err(format!("`{category}` is not a category; the categories are {names}"));
    }
    match limit.parse() {
        Ok(limit) if limit > 0 => Ok((category.to_owned(), limit)),
        _ => Err(format!("`{limit}` is not a whole number from 1")),
    }
}
