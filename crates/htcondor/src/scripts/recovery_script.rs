//! The recovery script of a failure handler, which repairs the cause of a failure before the next attempt.
//!
//! It runs on the machine of the schedd, as PRE scripts do, with the same variables that workers of the engine
//! set. Whether it succeeds or fails, the job is retried.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use windlass_process::{Pid, Signal, child_wait, process_tree, shell};
use windlass_types::format_duration;
use windlass_types::worker_messages::RecoveryScript;

/// The failed node.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecoveryTarget<'a> {
    /// The directory where DAGMan works and where the output of the script is kept.
    pub(super) directory: &'a Path,
    pub(super) node: &'a str,
    /// The name of the job in the spec.
    pub(super) job: &'a str,
    /// The base of relative paths in the spec.
    pub(super) submission_dir: &'a Path,
}

/// Runs the script to its end; returns its result as text.
pub(super) fn run_recovery(failed_job: RecoveryTarget<'_>, recovery: &RecoveryScript) -> String {
    match try_recovery(failed_job, recovery) {
        Ok(how) => how,
        Err(error) => format!("it could not be started: {error}"),
    }
}

fn try_recovery(failed_job: RecoveryTarget<'_>, recovery: &RecoveryScript) -> io::Result<String> {
    let log = failed_job.directory.join(format!("{}.{}", failed_job.node, RecoveryScript::LOG_EXTENSION));
    let log = File::create(log)?;
    let mut command = shell::shell_command(RecoveryScript::COMMAND);
    command.current_dir(failed_job.submission_dir).process_group(0);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.envs(recovery_environment(failed_job.job, recovery));
    let mut child = command.spawn()?;
    let pid = Pid::from_child(&child);
    let ended = wait_for_exit(pid, recovery.limit);
    // Processes that it leaves behind are in its group as well.
    process_tree::signal_group_and_members(pid, &process_tree::with_descendants([pid]), Signal::KILL);
    let status = child.wait()?;
    Ok(if ended {
        status.to_string()
    } else {
        format!("ended after its time limit of {}", format_duration(recovery.limit))
    })
}

fn wait_for_exit(pid: Pid, limit: Duration) -> bool {
    let begun = Instant::now();
    while !child_wait::is_over(pid) {
        let left = limit.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return false;
        }
        process_tree::wait_for_exit(&[pid], left);
    }
    true
}

fn recovery_environment(job: &str, recovery: &RecoveryScript) -> Vec<(&'static str, String)> {
    let failed = recovery.failed.to_string();
    let code = recovery.return_code.to_string();
    vec![
        ("WINDLASS_JOB_NAME", job.to_owned()),
        ("TORC_JOB_NAME", job.to_owned()),
        ("WINDLASS_ATTEMPT", recovery.failed.0.saturating_add(1).to_string()),
        ("TORC_ATTEMPT_ID", failed.clone()),
        ("WINDLASS_FAILED_ATTEMPT_ID", failed),
        ("WINDLASS_RETURN_CODE", code.clone()),
        ("TORC_RETURN_CODE", code),
        ("WINDLASS_RECOVERY_SCRIPT", recovery.script.clone()),
    ]
}
