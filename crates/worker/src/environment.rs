//! The environment of a job: that of the worker, the job's devices and its own variables, and, overriding all
//! of them, the contract's variables under both names (`WINDLASS_*` and `TORC_*`). These identify the owner of
//! a process, so a job cannot hide its own.

use crate::WorkerOptions;
use std::ffi::OsString;
use std::path::Path;
use std::sync::LazyLock;
use windlass_core::redact::{SecretNames, SecretRedactor};
use windlass_process::process_tree::marker_variable;
use windlass_process::spawn::{BaseEnvironment, EnvironmentAdditions};
use windlass_types::Timestamp;
use windlass_types::worker_messages::{
    Assignment, JOB_TOKEN_VARIABLE, RecoveryScript, SERVER_URL_VARIABLES, is_set_by_worker,
    server_url_variables,
};

/// Variables that all jobs share.
pub(crate) fn build_shared_environment(
    options: &WorkerOptions,
    own: impl IntoIterator<Item = (OsString, OsString)>,
) -> BaseEnvironment {
    let mut variables: Vec<(OsString, OsString)> = own.into_iter().collect();
    variables.push((marker_variable::WORKER.into(), options.token.clone().into()));
    variables.push(("WINDLASS_SITE".into(), options.site.clone().into()));
    let mut both = |name: &str, value: OsString| {
        variables.push((format!("WINDLASS_{name}").into(), value.clone()));
        variables.push((format!("TORC_{name}").into(), value));
    };
    both("OUTPUT_DIR", options.output_dir.clone().into());
    both("WORKFLOW_SUBMISSION_DIR", options.submission_dir.clone().into());
    if let Some(url) = &options.api_url {
        variables.extend(server_url_variables(url).map(|(name, url)| (name.into(), url.into())));
    } else {
        variables.retain(|(name, _)| !SERVER_URL_VARIABLES.iter().any(|variable| name == variable));
    }
    variables.push(("WINDLASS_SUBMIT_DIR".into(), options.submission_dir.clone().into()));
    if let Some(database) = &options.database {
        variables.push(("WINDLASS_DB".into(), database.into()));
    }
    if let Some(program) = &options.program {
        variables.push(("WINDLASS_EXE".into(), program.into()));
        if let Some(directory) = program.parent() {
            append_to_path(&mut variables, directory);
        }
    }
    BaseEnvironment::new(variables)
}

/// Appends `directory` to `PATH`.
fn append_to_path(variables: &mut Vec<(OsString, OsString)>, directory: &Path) {
    let path = variables.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
    let places = path.iter().flat_map(std::env::split_paths).chain([directory.to_owned()]);
    // `PATH` cannot contain a directory with a colon in its name.
    if let Ok(longer) = std::env::join_paths(places) {
        variables.push(("PATH".into(), longer));
    }
}

/// Masks the job's own and inherited secrets in its output.
pub(crate) fn build_redactor(assignment: &Assignment) -> SecretRedactor {
    static INHERITED: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
        let text =
            |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        let mut own: Vec<(String, String)> = std::env::vars_os().filter_map(text).collect();
        own.retain(|(name, _)| SecretNames::default().is_secret(name));
        own
    });
    let given = assignment.env.iter().chain(INHERITED.iter());
    SecretRedactor::new(&SecretNames::default(), given.map(|(name, value)| (name.as_str(), value.as_str())))
}

/// Variables that limit the threads of common libraries.
pub(crate) const THREADS_VARIABLE: &str = "OMP_NUM_THREADS";

/// The devices and settings that this worker gives to one job.
#[derive(Debug)]
pub(crate) struct GrantedEnvironment<'a> {
    /// The ids of the GPUs.
    pub(crate) devices: &'a [&'a str],
    /// This worker has GPUs for jobs that request them.
    pub(crate) has_gpus: bool,
    /// The time at which its `runtime` ends.
    pub(crate) deadline: Option<Timestamp>,
    /// The user's environment does not set the number of threads ([`THREADS_VARIABLE`]).
    pub(crate) is_thread_count_unset: bool,
    /// The process is the recovery script for this failure, not the job.
    pub(crate) recovery: Option<&'a RecoveryScript>,
}

/// The variables of one job. If a name occurs twice, the last value counts.
pub(crate) fn add_job_variables(
    to: &mut EnvironmentAdditions,
    assignment: &Assignment,
    given: &GrantedEnvironment<'_>,
) {
    to.clear();
    let key = &assignment.key;
    to.set("WINDLASS_WORKFLOW_ID", key.workflow);
    to.set("TORC_WORKFLOW_ID", key.workflow);
    to.set(marker_variable::RUN, key.run);
    to.set("TORC_RUN_ID", key.run);
    to.set(marker_variable::JOB, key.job);
    to.set("TORC_JOB_ID", key.job);
    to.set("WINDLASS_JOB_NAME", &assignment.name);
    to.set("TORC_JOB_NAME", &assignment.name);
    // Identifies the claim, also for a recovery script: the processes of an attempt are found by it.
    to.set(marker_variable::ATTEMPT, key.attempt);
    to.set("TORC_ATTEMPT_ID", given.recovery.map_or(key.attempt, |recovery| recovery.failed));
    to.set("WINDLASS_ATTEMPT", key.attempt);
    let cpus = assignment.resources.cpus.max(1);
    to.set("WINDLASS_CPUS", cpus);
    if assignment.asked_for_resources && given.is_thread_count_unset {
        to.set(THREADS_VARIABLE, cpus);
    }
    if let Some(limit) = assignment.limits.memory {
        to.set("WINDLASS_MEMORY_BYTES", limit.0);
    }
    if let Some(deadline) = given.deadline {
        to.set("WINDLASS_DEADLINE", deadline.0.div_euclid(1_000_000));
    }
    for (name, value) in &assignment.params {
        to.set(&format!("WINDLASS_PARAM_{}", name.to_uppercase()), value);
    }
    // A job that states its resources without GPUs must not use those of other jobs.
    if !given.devices.is_empty() || (given.has_gpus && assignment.asked_for_resources) {
        let devices = given.devices.join(",");
        for name in [
            "CUDA_VISIBLE_DEVICES",
            "HIP_VISIBLE_DEVICES",
            "ROCR_VISIBLE_DEVICES",
            "WINDLASS_GPU_VISIBLE_DEVICES",
            "TORC_GPU_VISIBLE_DEVICES",
        ] {
            to.set(name, &devices);
        }
    }
    if let Some(recovery) = given.recovery {
        to.set("WINDLASS_FAILED_ATTEMPT_ID", recovery.failed);
        to.set("WINDLASS_RETURN_CODE", recovery.return_code);
        to.set("TORC_RETURN_CODE", recovery.return_code);
        to.set("WINDLASS_RECOVERY_SCRIPT", &recovery.script);
    }
    let may_be_set = |name: &str| !is_set_by_worker(name) || name == JOB_TOKEN_VARIABLE;
    for (name, value) in assignment.env.iter().filter(|(name, _)| may_be_set(name)) {
        to.set(name, value);
    }
}
