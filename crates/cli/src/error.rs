//! Errors of a command as shown to the user: a message, a hint, and an exit code.
//!
//! Library errors are converted to [`CliError`] only here, with one `From` per library error.

use crate::ui::text;
use serde::Serialize;
use std::fmt;
use windlass_spec::SpecDiagnostics;
use windlass_store::rpc::rpc_error::ErrorCategory;
use windlass_types::Bytes;

/// The exit codes of `windlass`. Documented in `docs/exit-codes.md` and in `windlass --help`; scripts rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum CliExit {
    Success = 0,
    JobsFailed = 1,
    Usage = 2,
    Interrupted = 3,
    Refused = 4,
    Environment = 5,
    NeedsDecision = 6,
    Internal = 70,
}

impl CliExit {
    pub(crate) const ALL: [Self; 8] = [
        Self::Success,
        Self::JobsFailed,
        Self::Usage,
        Self::Interrupted,
        Self::Refused,
        Self::Environment,
        Self::NeedsDecision,
        Self::Internal,
    ];

    pub(crate) const fn code(self) -> u8 {
        self as u8
    }

    pub(crate) const fn meaning(self) -> &'static str {
        match self {
            Self::Success => "success: the command succeeded and all jobs completed",
            Self::JobsFailed => "the workflow ended, but some jobs did not complete",
            Self::Usage => "invalid usage, or an error in the spec file",
            Self::Interrupted => "interrupted before the end; continue with `windlass resume`",
            Self::Refused => {
                "refused: in use, canceled, ended, not permitted, or written by a newer version of windlass"
            }
            Self::Environment => {
                "environment error: damaged database, full disk, permissions, unreachable server"
            }
            Self::NeedsDecision => {
                "decision needed: failures wait for a decision, or the retry budget is used up"
            }
            Self::Internal => "a bug in windlass",
        }
    }
}

impl From<windlass_htcondor::render::DagRenderError> for CliError {
    fn from(error: windlass_htcondor::render::DagRenderError) -> Self {
        use windlass_htcondor::render::DagRenderError::{Io, Settings};
        match error {
            Io { .. } | Settings(_) => Self::io(error.to_string()),
            _ => Self::user(error.to_string()),
        }
    }
}

impl From<windlass_htcondor::script_settings::ScriptSettingsError> for CliError {
    fn from(error: windlass_htcondor::script_settings::ScriptSettingsError) -> Self {
        Self::io(error.to_string())
    }
}

impl From<CliExit> for std::process::ExitCode {
    fn from(exit: CliExit) -> Self {
        Self::from(exit.code())
    }
}

/// The error category, which determines the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CliErrorKind {
    /// The command line names a missing object or is invalid.
    User,
    /// The spec file has errors.
    Spec,
    /// The object is in use, or the operation would destroy something.
    Refused,
    /// Files, disk, permissions, a damaged database.
    Io,
    /// A bug.
    Internal,
    /// The reader of the output closed it (`windlass jobs | head`): not an error to report.
    OutputClosed,
}

impl CliErrorKind {
    pub(crate) const fn exit(self) -> CliExit {
        match self {
            Self::User | Self::Spec => CliExit::Usage,
            Self::Refused => CliExit::Refused,
            Self::Io => CliExit::Environment,
            Self::Internal => CliExit::Internal,
            Self::OutputClosed => CliExit::Success,
        }
    }
}

/// An error for the user: the message, and a hint.
#[derive(Debug)]
pub(crate) struct CliError {
    pub(crate) kind: CliErrorKind,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    /// Errors of spec files or documents, with positions, per file.
    pub(crate) diagnostics: Vec<SpecDiagnostics>,
}

impl CliError {
    pub(crate) fn new(kind: CliErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None, diagnostics: Vec::new() }
    }

    pub(crate) fn user(message: impl Into<String>) -> Self {
        Self::new(CliErrorKind::User, message)
    }

    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::new(CliErrorKind::Refused, message)
    }

    pub(crate) fn io(message: impl Into<String>) -> Self {
        Self::new(CliErrorKind::Io, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(CliErrorKind::Internal, message)
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CliError {}

impl From<windlass_insight::failure_commands::FailureCommandError> for CliError {
    fn from(error: windlass_insight::failure_commands::FailureCommandError) -> Self {
        match error {
            windlass_insight::failure_commands::FailureCommandError::Store(error) => error.into(),
            other => Self { hint: other.hint(), ..Self::refused(other.to_string()) },
        }
    }
}

impl From<windlass_store::StoreError> for CliError {
    fn from(error: windlass_store::StoreError) -> Self {
        use windlass_store::StoreError as E;
        let kind = match &error {
            E::Missing { .. }
            | E::NoSuchWorkflow(_)
            | E::NoSuchJob(_)
            | E::NoSuchWorker(_)
            | E::NoSuchUserData(_)
            | E::NoSuchRequirements { .. }
            | E::NoSuchRequirementsId(_)
            | E::NoSuchFile(_)
            | E::NoSuchEvent(_)
            | E::NoSuchResult(_)
            | E::NoSuch { .. }
            | E::NoSuchName { .. }
            | E::NoSuchMember { .. }
            | E::NameTaken { .. }
            | E::Circle { .. }
            | E::DuplicateJobName { .. }
            | E::DuplicateName { .. }
            | E::BadExport { .. }
            | E::BadLocation { .. }
            | E::OutOfRange { .. } => CliErrorKind::User,
            E::AlreadyExists { .. }
            | E::FormatTooNew { .. }
            | E::FormatTooOld { .. }
            | E::DifferentHistory { .. }
            | E::Busy { .. }
            | E::NotPrivate { .. }
            | E::LockTimeout { .. }
            | E::Conflict { .. }
            | E::Outdated { .. }
            | E::Unexpected { .. }
            | E::Action { .. }
            | E::StaleRun { .. }
            | E::WorkersMayBeAlive { .. }
            | E::NotRunning { .. }
            | E::TooManyIterations { .. }
            | E::StillActive { .. }
            | E::JobIsHeld { .. }
            | E::ForeignDatabase { .. }
            | E::NotEmpty { .. }
            | E::Superseded { .. }
            | E::EventIsRecord(_)
            | E::OutputTaken { .. }
            | E::NotOwner { .. }
            | E::InUse { .. } => CliErrorKind::Refused,
            E::NotAFile { .. }
            | E::NotADatabase { .. }
            | E::OtherApplication { .. }
            | E::Truncated { .. }
            | E::Damaged { .. }
            | E::LeftoverLog { .. }
            | E::FileRemoved { .. }
            | E::ReadOnly { .. }
            | E::SqliteTooOld { .. }
            | E::CannotOpen { .. }
            | E::File { .. }
            | E::DiskFull { .. }
            | E::Disk { .. }
            | E::Unreachable { .. }
            | E::AccessDenied { .. }
            | E::Untrusted { .. }
            | E::Overloaded { .. }
            | E::InDoubt { .. } => CliErrorKind::Io,
            E::Remote(elsewhere) => match elsewhere.category {
                ErrorCategory::Missing | ErrorCategory::Wrong => CliErrorKind::User,
                ErrorCategory::Refused | ErrorCategory::Forbidden => CliErrorKind::Refused,
                ErrorCategory::Unavailable => CliErrorKind::Io,
                ErrorCategory::Internal => CliErrorKind::Internal,
            },
            E::RunNotBegun { .. } | E::Refused { .. } | E::Internal { .. } | E::Closed => {
                CliErrorKind::Internal
            }
        };
        Self { hint: error.hint(), ..Self::new(kind, with_sources(&error)) }
    }
}

impl From<windlass_server::logging::LogLevelError> for CliError {
    fn from(error: windlass_server::logging::LogLevelError) -> Self {
        Self::user(error.to_string()).with_hint("valid levels are error, warn, info, debug and trace")
    }
}

impl From<windlass_client::ClientError> for CliError {
    fn from(error: windlass_client::ClientError) -> Self {
        windlass_store::StoreError::from(error).into()
    }
}

impl From<windlass_scheduler::SchedulerError> for CliError {
    fn from(error: windlass_scheduler::SchedulerError) -> Self {
        use windlass_scheduler::SchedulerError as E;
        let message = with_sources(&error);
        match error {
            E::Store(error) => error.into(),
            E::NoSuchWorkflow(_) => Self::user(message).with_hint("`windlass workflows` lists them"),
            E::Cycle(_) => Self::new(CliErrorKind::Spec, message),
            E::WrongSite { .. } => Self::user(message).with_hint(
                "a server assigns such jobs to workers of those sites: `windlass serve`, `windlass worker --site NAME`",
            ),
            E::MissingLabels { labels, .. } => Self::user(message).with_hint(format!(
                "if this machine has it: `windlass resume{0}`; a server assigns such jobs to `windlass worker{0}`",
                labels.iter().flat_map(|label| [" --label ", label.as_str()]).collect::<String>()
            )),
            E::JobTooLarge { asked, capacity, .. } => Self::user(message).with_hint(format!(
                "it requests {}, and {} are available to jobs here; change that with --num-cpus, --memory-gb and --num-gpus, \
                 or lower the request with `windlass jobs update JOB --memory SIZE`",
                render_amounts(asked.cpus, asked.memory, asked.gpus),
                render_amounts(capacity.cpus, capacity.memory, capacity.gpus)
            )),
            E::StartWorker(_) | E::Wait(_) | E::WorkerKeepsDying(_) => Self::io(message),
            E::EnsureWorkerDead(_) => Self::refused(message)
                .with_hint("nothing was started, so that no job runs twice at the same time; end these processes, then resume; if the host is dead for good: `windlass resume --assume-dead`"),
            E::LockLost(error @ windlass_store::StoreError::FileRemoved { .. }) => {
                let hint = error.hint();
                Self { hint, ..Self::io(message) }
            }
            E::LockLost(_) => Self::refused(message)
                .with_hint("its jobs were terminated here; `windlass status` shows the progress of the other process"),
            E::Protocol(_) => Self::internal(message),
        }
    }
}

impl From<SpecDiagnostics> for CliError {
    fn from(diagnostics: SpecDiagnostics) -> Self {
        let count = diagnostics.count();
        let errors = if count == 1 { "an error".to_owned() } else { format!("{count} errors") };
        let message = format!("{} has {errors}", diagnostics.source_name);
        Self { diagnostics: vec![diagnostics], ..Self::new(CliErrorKind::Spec, message) }
    }
}

/// Combines errors of several files.
impl From<Vec<SpecDiagnostics>> for CliError {
    fn from(mut several: Vec<SpecDiagnostics>) -> Self {
        if several.len() == 1 {
            return several.remove(0).into();
        }
        let errors: usize = several.iter().map(SpecDiagnostics::count).sum();
        let message = format!("{} files have {errors} errors", several.len());
        Self { diagnostics: several, ..Self::new(CliErrorKind::Spec, message) }
    }
}

fn render_amounts(cpus: u32, memory: Bytes, gpus: u32) -> String {
    let gpus =
        if gpus == 0 { String::new() } else { format!(", {}", text::render_count(gpus.into(), "GPU")) };
    format!("{}, {memory}{gpus}", text::render_count(cpus.into(), "CPU"))
}

/// The error and its causes on one line. A cause that the error already contains is not repeated.
pub(crate) fn with_sources(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.ends_with(&cause) { text } else { format!("{text}: {cause}") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_code_page_matches_code() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/exit-codes.md"))
            .unwrap();
        let listed: Vec<&str> = page
            .lines()
            .filter(|line| line.starts_with("| ") && line[2..].starts_with(char::is_numeric))
            .collect();
        let known = CliExit::ALL.map(|exit| format!("| {} | {} |", exit.code(), exit.meaning()));
        assert_eq!(listed, known);
    }

    #[test]
    fn error_sources_follow_error_message() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot read")]
        struct Outer(#[source] std::io::Error);
        let error = Outer(std::io::Error::other("bad sector"));
        assert_eq!(with_sources(&error), "cannot read: bad sector");
    }

    #[test]
    fn error_source_already_in_message_is_not_repeated() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot be reached: {0}")]
        struct Outer(#[source] std::io::Error);
        let error = Outer(std::io::Error::other("connection refused"));
        assert_eq!(with_sources(&error), "cannot be reached: connection refused");
    }

    #[test]
    fn every_error_kind_has_exit_code() {
        for (kind, code) in [
            (CliErrorKind::User, 2),
            (CliErrorKind::Spec, 2),
            (CliErrorKind::Refused, 4),
            (CliErrorKind::Io, 5),
            (CliErrorKind::Internal, 70),
            (CliErrorKind::OutputClosed, 0),
        ] {
            assert_eq!(kind.exit().code(), code, "{kind:?}");
        }
    }
}
