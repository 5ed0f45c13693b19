//! The commands of HTCondor, each with a time limit, and the meaning of their output.
//!
//! A schedd that does not answer is an error of its own ([`CondorError::is_transient`]): nothing can be concluded
//! from it about any DAG. Only the attributes that are used are queried.

mod dagman_job;

use crate::file_layout;
use crate::parsers::class_ads::{self, ClassAdError};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use windlass_process::command::{self, CommandOutcome};
use windlass_types::Timestamp;

pub use self::dagman_job::{DagmanJob, DagmanJobState};
pub use windlass_process::command::CancelToken;

/// The prefix of the batch names of Windlass's DAGs.
pub const BATCH_PREFIX: &str = "windlass-";

/// Schedds with thousands of jobs are slow.
pub const COMMAND_TIMEOUT: Duration = Duration::from_mins(1);

/// Queries are repeated anyway, so they need not wait as long as commands that change something.
pub const QUERY_TIMEOUT: Duration = Duration::from_secs(20);

/// Access to one schedd through HTCondor's commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CondorClient {
    /// The name of the schedd; default: the schedd of this machine. It has to see the directories of the runs.
    pub schedd: Option<String>,
    /// The directory of the commands, if they are not on PATH.
    pub tools_directory: Option<PathBuf>,
    /// The time limit of a command.
    pub timeout: Duration,
    /// Ends a running command when the caller stops.
    pub cancel_token: CancelToken,
}

impl Default for CondorClient {
    fn default() -> Self {
        Self {
            schedd: None,
            tools_directory: None,
            timeout: COMMAND_TIMEOUT,
            cancel_token: CancelToken::default(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum CondorError {
    #[error(
        "`{tool}` cannot be started: install HTCondor's commands and add them to the PATH of this process"
    )]
    Missing { tool: String, source: io::Error },
    #[error("`{tool}` exceeded its time limit of {} s: the schedd hangs or is overloaded", timeout.as_secs())]
    TimedOut { tool: String, timeout: Duration },
    #[error("`{tool}` was interrupted because its caller stopped; it runs again after the next start")]
    Canceled { tool: String },
    #[error("{schedd} cannot be reached; the state of its DAGs is unknown: {output}")]
    Unreachable { schedd: String, output: String },
    #[error("`{tool}` failed ({ending}): {output}")]
    Refused { tool: String, ending: String, output: String },
    #[error("cannot parse the output of `{tool}`")]
    InvalidOutput { tool: String, source: ClassAdError },
    #[error("`{tool}` did not print the cluster id of the DAG: {output}")]
    NoClusterId { tool: String, output: String },
}

impl CondorError {
    /// Whether a later call may succeed; until then the state of the DAGs is unknown.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::TimedOut { .. }
                | Self::Canceled { .. }
                | Self::Unreachable { .. }
                | Self::InvalidOutput { .. }
        )
    }
}

impl CondorError {
    /// Whether the pool answers but does not know a schedd of this name: it was taken out of service and has no
    /// queue. A schedd that only does not answer may still have one.
    pub fn is_unknown_schedd(&self) -> bool {
        let Self::Unreachable { output: message, .. } = self else { return false };
        UNKNOWN_SCHEDD_MESSAGES.iter().any(|words| message.contains(words))
            && !message.contains("condor_collector")
    }
}

/// The arguments of `condor_submit_dag`.
#[derive(Debug)]
pub struct DagSubmission<'a> {
    pub directory: &'a Path,
    pub batch: &'a str,
    /// Kept open until the command ends, even if this process dies meanwhile: a lock on this file is held that
    /// long.
    pub lock: &'a File,
}

impl CondorClient {
    /// Submits the DAG of a directory and returns its cluster id. A queued DAG may still be invalid.
    ///
    /// The newest rescue file is used, if there is one. Never uses `-f`, which would rename the rescue files;
    /// files of an earlier run are overwritten only where they are not needed.
    pub fn submit_dag(&self, submission: &DagSubmission<'_>) -> Result<u64, CondorError> {
        let tool = "condor_submit_dag";
        let mut command = self.tool_command(tool);
        command.args(["-batch-name", submission.batch, "-update_submit", file_layout::OUTER_DAG]);
        command.current_dir(submission.directory);
        let lock = submission.lock.try_clone();
        command.stdin(lock.map_err(|source| CondorError::Missing { tool: tool.to_owned(), source })?);
        if let Some(schedd) = &self.schedd {
            // Unlike `-r`, which spools the files, this also applies to what DAGMan itself and its SUBDAGs
            // submit.
            command.env("_CONDOR_SCHEDD_HOST", schedd);
        }
        let message = self.run_tool(tool, &mut command)?;
        parse_cluster_id(&message)
            .ok_or_else(|| CondorError::NoClusterId { tool: tool.to_owned(), output: first_lines(&message) })
    }

    /// Returns the queued DAGs with this batch name, without their SUBDAGs.
    pub fn find_dags(&self, batch: &str) -> Result<Vec<DagmanJob>, CondorError> {
        self.query_queue(&format!("JobBatchName == {}", quote_classad_string(batch)))
    }

    /// Counts the queued jobs with this batch name: DAGs, their SUBDAGs and their nodes.
    pub fn count_jobs(&self, batch: &str) -> Result<usize, CondorError> {
        let constraint = format!("JobBatchName == {}", quote_classad_string(batch));
        Ok(self.query_jobs("condor_q", &["-allusers", "-constraint", &constraint])?.len())
    }

    /// Returns all queued DAGs of Windlass, with one query.
    pub fn all_dags(&self) -> Result<Vec<DagmanJob>, CondorError> {
        let length = BATCH_PREFIX.len();
        self.query_queue(&format!(
            "substr(JobBatchName, 0, {length}) == {}",
            quote_classad_string(BATCH_PREFIX)
        ))
    }

    /// Those of them that are in the queue.
    pub fn dagman_jobs(&self, clusters: &[u64]) -> Result<Vec<DagmanJob>, CondorError> {
        if clusters.is_empty() {
            return Ok(Vec::new());
        }
        let list = clusters.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        self.query_queue(&format!("member(ClusterId, {{{list}}})"))
    }

    /// Returns the DAGs with this batch name that left the queue since then.
    pub fn find_in_history(&self, batch: &str, since: Timestamp) -> Result<Vec<DagmanJob>, CondorError> {
        // The history is read from its end and the search stops at older jobs.
        let seconds = since.micros() / 1_000_000;
        let until = format!("EnteredCurrentStatus < {seconds}");
        self.query_history(&[
            "-since",
            &until,
            "-constraint",
            &top_dag_constraint(&format!("JobBatchName == {}", quote_classad_string(batch))),
        ])
    }

    /// Finds a DAG that left the queue.
    pub fn find_job_in_history(&self, cluster: u64) -> Result<Option<DagmanJob>, CondorError> {
        Ok(self.query_history(&["-limit", "1", &cluster.to_string()])?.pop())
    }

    /// Holds DAGMan; its jobs and SUBDAGs continue. False if there was nothing to hold: it is gone or already
    /// held.
    pub fn hold(&self, cluster: u64, why: &str) -> Result<bool, CondorError> {
        self.run_action("condor_hold", cluster, why)
    }

    /// Releases DAGMan. False if it is gone or not held.
    pub fn release(&self, cluster: u64, why: &str) -> Result<bool, CondorError> {
        self.run_action("condor_release", cluster, why)
    }

    /// Removes DAGMan with all its jobs; each level writes a rescue file before it ends. False if it is gone or
    /// being removed.
    pub fn remove(&self, cluster: u64, why: &str) -> Result<bool, CondorError> {
        self.run_action("condor_rm", cluster, why)
    }

    /// Sets the priority of the jobs of this batch with this `CMS_NodeRole`, except for DAGMan itself. Running
    /// jobs keep running.
    pub fn set_priority(&self, batch: &str, role: &str, priority: i32) -> Result<(), CondorError> {
        let (batch, role) = (quote_classad_string(batch), quote_classad_string(role));
        let which = format!(
            "JobBatchName == {batch} && CMS_NodeRole == {role} && JobUniverse =!= 7 && JobPrio =!= {priority}"
        );
        // If no job matches, condor_qedit fails as for any other reason.
        if self.query_jobs("condor_q", &["-allusers", "-limit", "1", "-constraint", &which])?.is_empty() {
            return Ok(());
        }
        let mut command = self.schedd_command("condor_qedit");
        command.args(["-constraint", &which, "JobPrio", &priority.to_string()]);
        self.run_tool("condor_qedit", &mut command).map(drop)
    }

    fn run_action(&self, tool: &str, cluster: u64, why: &str) -> Result<bool, CondorError> {
        let mut command = self.schedd_command(tool);
        command.args(["-reason", &sanitize_reason(why), &cluster.to_string()]);
        match self.run_tool(tool, &mut command) {
            // In an empty queue the command succeeds.
            Ok(message) => Ok(message.contains(&format!("cluster {cluster} "))),
            Err(CondorError::Refused { output: message, .. }) if message.contains("Couldn't find/") => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn query_queue(&self, constraint: &str) -> Result<Vec<DagmanJob>, CondorError> {
        self.query_jobs("condor_q", &["-allusers", "-constraint", &top_dag_constraint(constraint)])
    }

    fn query_history(&self, arguments: &[&str]) -> Result<Vec<DagmanJob>, CondorError> {
        self.query_jobs("condor_history", arguments)
    }

    fn query_jobs(&self, tool: &str, arguments: &[&str]) -> Result<Vec<DagmanJob>, CondorError> {
        let mut command = self.schedd_command(tool);
        command.args(["-json", "-attributes", dagman_job::QUEUE_ATTRIBUTES]).args(arguments);
        let message = self.run_tool(tool, &mut command)?;
        let ads = class_ads::parse_ads(message.as_bytes())
            .map_err(|source| CondorError::InvalidOutput { tool: tool.to_owned(), source })?;
        Ok(ads.iter().filter_map(DagmanJob::from_ad).collect())
    }

    fn schedd_command(&self, tool: &str) -> Command {
        let mut command = self.tool_command(tool);
        if let Some(schedd) = &self.schedd {
            command.args(["-name", schedd]);
        }
        // Not the current directory, which may have been deleted.
        command.stdin(Stdio::null()).current_dir("/");
        command
    }

    fn tool_command(&self, tool: &str) -> Command {
        Command::new(self.tools_directory.as_ref().map_or_else(|| tool.into(), |tools| tools.join(tool)))
    }

    /// Returns the output of a successful command.
    fn run_tool(&self, tool: &str, command: &mut Command) -> Result<String, CondorError> {
        let owned = || tool.to_owned();
        let ran = command::run_cancellable(&self.cancel_token, command, self.timeout)
            .map_err(|source| CondorError::Missing { tool: owned(), source })?;
        let answer = match ran {
            CommandOutcome::Finished(answer) => answer,
            CommandOutcome::TimedOut => {
                return Err(CondorError::TimedOut { tool: owned(), timeout: self.timeout });
            }
            CommandOutcome::Canceled => return Err(CondorError::Canceled { tool: owned() }),
        };
        let printed = String::from_utf8_lossy(&answer.stdout).into_owned();
        if answer.status.success() {
            return Ok(printed);
        }
        let complaint = String::from_utf8_lossy(&answer.stderr);
        let message = first_lines(if complaint.trim().is_empty() { &printed } else { &complaint });
        if is_unreachable(&complaint) {
            return Err(CondorError::Unreachable { schedd: self.schedd_name(), output: message });
        }
        Err(CondorError::Refused { tool: owned(), ending: answer.status.to_string(), output: message })
    }

    fn schedd_name(&self) -> String {
        self.schedd.as_ref().map_or_else(|| "the local schedd".to_owned(), |name| format!("schedd {name}"))
    }
}

/// Matches DAGMan jobs that were not submitted by another DAGMan. (All jobs of a DAG inherit its batch name.)
fn top_dag_constraint(constraint: &str) -> String {
    format!("JobUniverse == 7 && DAGManJobId =?= undefined && {constraint}")
}

/// Each tool has its own wording, and all exit with 1.
const UNREACHABLE_MESSAGES: &[&str] = &[
    "an't find address",
    "cannot get address of schedd",
    "Collector has no record of",
    "ouldn't contact the condor_collector",
    "Unable to locate remote schedd",
    "Failed to fetch ads",
    "ailed to connect",
    "(null)",
    "communication error",
    "Failed to end",
];

/// The wordings that mean that no schedd has this name.
const UNKNOWN_SCHEDD_MESSAGES: &[&str] = &[
    "an't find address for schedd",
    "cannot get address of schedd",
    "Collector has no record of",
    "Unable to locate remote schedd",
];

fn is_unreachable(complaint: &str) -> bool {
    UNREACHABLE_MESSAGES.iter().any(|words| complaint.contains(words))
}

/// Parses `1 job(s) submitted to cluster 40.`
fn parse_cluster_id(message: &str) -> Option<u64> {
    let number =
        |line: &str| line.strip_prefix("1 job(s) submitted to cluster ")?.strip_suffix('.')?.parse().ok();
    message.lines().find_map(number)
}

/// The first lines: some tools add long explanations.
fn first_lines(message: &str) -> String {
    let lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines = lines.take_while(|line| !line.starts_with("Extra Info:")).take(3);
    lines.collect::<Vec<_>>().join(" ")
}

/// A string of the ClassAd language.
fn quote_classad_string(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// HTCondor puts a reason between quotes without escaping, and drops all of it if the result is not valid.
fn sanitize_reason(why: &str) -> String {
    why.replace('"', "'").replace('\\', "/").replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_id_is_parsed_from_submit_output() {
        let plain = "Submitting job(s).\n1 job(s) submitted to cluster 40.\n\nRunning rescue DAG 1\n";
        assert_eq!(parse_cluster_id(plain), Some(40));
        for other in ["", "Submitting job(s).\n", "1 job(s) submitted to cluster 4", "ERROR: 40."] {
            assert_eq!(parse_cluster_id(other), None, "{other:?}");
        }
    }

    #[test]
    fn unreachable_schedd_differs_from_a_refusal() {
        let away = [
            "ERROR: Can't find address of local schedd",
            "Error: Can't find address for schedd nowhere.pool.test",
            "Error: cannot get address of schedd nowhere",
            "Error: Collector has no record of schedd/submitter",
            "Unable to locate remote schedd (name=nowhere, pool=).",
            "Error: Couldn't contact the condor_collector on 127.0.0.1:9711.",
            "condor_rm: (null)",
            "-- Failed to fetch ads from: <127.0.0.1:9618?addrs=127.0.0.1-9618> : host",
        ];
        for message in away {
            assert!(is_unreachable(message), "{message}");
        }
        for message in
            ["ERROR: \"workflow.dag.condor.sub\" already exists.", "Couldn't find/hold all jobs in cluster 6"]
        {
            assert!(!is_unreachable(message), "{message}");
        }
    }

    #[test]
    fn only_a_schedd_unknown_to_the_pool_has_no_queue() {
        let unknown = |message: &str| {
            CondorError::Unreachable { schedd: "schedd s1".into(), output: message.into() }
                .is_unknown_schedd()
        };
        assert!(unknown("Error: Collector has no record of schedd/submitter"));
        assert!(unknown("Error: Can't find address for schedd nowhere.pool.test"));
        assert!(!unknown("Error: Couldn't contact the condor_collector on 127.0.0.1:9711."));
        assert!(!unknown("-- Failed to fetch ads from: <127.0.0.1:9618> : host"), "it may be back");
        assert!(!unknown("ERROR: Can't find address of local schedd"), "it may be restarted");
    }

    #[test]
    fn long_explanations_are_removed_from_messages() {
        let message = "Error: (null)\n\nExtra Info: You probably saw this error because the condor_schedd is not \nrunning";
        assert_eq!(first_lines(message), "Error: (null)");
        assert_eq!(
            first_lines("\nCouldn't find/hold all jobs in cluster 66\n"),
            "Couldn't find/hold all jobs in cluster 66"
        );
    }

    #[test]
    fn strings_are_quoted_for_classads() {
        assert_eq!(quote_classad_string(r#"a"b\c"#), r#""a\"b\\c""#);
        assert_eq!(sanitize_reason("because \"it\"\nis \\ late"), "because 'it' is / late");
    }

    #[test]
    fn missing_command_error_says_to_install_htcondor() {
        let condor = CondorClient { tools_directory: Some("/nowhere".into()), ..CondorClient::default() };
        let error = condor.find_dags("windlass-x").unwrap_err();
        assert!(matches!(&error, CondorError::Missing { tool, .. } if tool == "condor_q"), "{error}");
        assert!(error.to_string().contains("install HTCondor's commands"), "{error}");
    }
}
