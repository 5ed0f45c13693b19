//! Where a server has requests run.

use super::run::parse_pair;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use windlass_requests::BackendKind;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendName {
    /// On workers of this server.
    #[default]
    Engine,
    /// As DAGs of an HTCondor pool.
    Htcondor,
}

impl From<BackendName> for BackendKind {
    fn from(name: BackendName) -> Self {
        match name {
            BackendName::Engine => Self::Engine,
            BackendName::Htcondor => Self::Htcondor,
        }
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Where requests run")]
pub(crate) struct BackendArgs {
    /// Where new runs of requests go; those that exist stay where they are.
    #[arg(
        id = "serve_backend",
        long = "backend",
        value_enum,
        value_name = "BACKEND",
        default_value = "engine"
    )]
    pub(crate) backend: BackendName,
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
