//! The environment of a job: the worker's own, its devices, what the job itself sets, and over all of that the names of
//! the contract twice (`WINDLASS_*` and `TORC_*`), which also say whose a process is: no job can hide its own.

use crate::WorkerOptions;
use std::ffi::OsString;
use windlass_proc::spawn::{Additions, Environment};
use windlass_proc::tree::tag;
use windlass_types::work::{Assignment, is_reserved_name};

/// What all jobs share.
pub(crate) fn shared(
    options: &WorkerOptions,
    own: impl IntoIterator<Item = (OsString, OsString)>,
) -> Environment {
    let mut variables: Vec<(OsString, OsString)> = own.into_iter().collect();
    variables.push((tag::WORKER.into(), options.token.clone().into()));
    let mut both = |name: &str, value: OsString| {
        variables.push((format!("WINDLASS_{name}").into(), value.clone()));
        variables.push((format!("TORC_{name}").into(), value));
    };
    both("OUTPUT_DIR", options.output_dir.clone().into());
    both("WORKFLOW_SUBMISSION_DIR", options.submission_dir.clone().into());
    if let Some(url) = &options.api_url {
        both("API_URL", url.into());
    }
    Environment::new(variables)
}

/// What one job adds. `devices` are the ids of the graphics cards it was given.
pub(crate) fn add(to: &mut Additions, assignment: &Assignment, devices: &[&str]) {
    to.clear();
    let key = &assignment.key;
    to.set("WINDLASS_WORKFLOW_ID", key.workflow);
    to.set("TORC_WORKFLOW_ID", key.workflow);
    to.set(tag::RUN, key.run);
    to.set("TORC_RUN_ID", key.run);
    to.set(tag::JOB, key.job);
    to.set("TORC_JOB_ID", key.job);
    to.set("WINDLASS_JOB_NAME", &assignment.name);
    to.set("TORC_JOB_NAME", &assignment.name);
    to.set(tag::ATTEMPT, key.attempt);
    to.set("TORC_ATTEMPT_ID", key.attempt);
    to.set("WINDLASS_ATTEMPT", key.attempt);
    to.set("WINDLASS_CPUS", assignment.resources.cpus.max(1));
    if let Some(limit) = assignment.limits.memory {
        to.set("WINDLASS_MEMORY_BYTES", limit.0);
    }
    if !devices.is_empty() {
        let devices = devices.join(",");
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
    for (name, value) in assignment.env.iter().filter(|(name, _)| !is_reserved_name(name)) {
        to.set(name, value);
    }
}
