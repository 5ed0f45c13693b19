//! The single submit file of a workflow spec. DAGMan reads it for each attempt of each job.

use super::{FileTransfer, WorkflowDagRun};
use crate::file_layout;
use crate::render::outer_dag::sanitize_comment;
use crate::render::quote;
use crate::render::submit_files::{self, INCLUDE_NEXT_ATTEMPT, absolute_path};
use crate::render::{DagRenderError, with_subject};
use std::fmt::Write as _;

/// Differences between jobs are in the VARS of the DAG. Output files are transferred after success only: a
/// missing one would hold the job and hide how it ended. HTCondor itself does not retry.
const SUBMIT_FILE_BODY: &str = "\
when_to_transfer_output = ON_SUCCESS
success_exit_code = 0
max_retries = 0
preserve_relative_paths = True
transfer_output_files = $(fetched)
priority = $(urgency)
if defined cpus
  request_cpus = $(cpus)
  request_memory = $(memory)
endif
if defined gpus
  request_gpus = $(gpus)
endif
if defined runtime
  allowed_execute_duration = $(runtime)
  minutes = $(runtime) / 60 + 1
  MY.MaxWallTimeMins = $INT(minutes)
endif
ulog_execute_attrs = GLIDEIN_CMSSite
if defined sites
  MY.DESIRED_Sites = \"$(sites)\"
  requirements = stringListMember(TARGET.GLIDEIN_CMSSite, MY.DESIRED_Sites)
endif
";

pub(super) fn render_submit_file(run: &WorkflowDagRun<'_>) -> Result<String, DagRenderError> {
    let path = |what: &str, path| with_subject(what, quote::check_value(absolute_path(what, path)?));
    let home = path("the directory of the workflow", run.submission_dir)?;
    let directory = path("the directory of the run", run.directory)?;
    let transfer = match run.transfer {
        FileTransfer::IfNeeded => "IF_NEEDED",
        FileTransfer::Always => "YES",
    };
    let mut text = format!(
        "# Jobs of workflow {}, run {}.\n\
         universe = vanilla\n\
         executable = {}/$(JOB).sh\n\
         initialdir = {home}\n\
         # Retries are counted from 0, attempts from 1.\n\
         attempt = $(RETRY) + 1\n\
         environment = {}\n\
         output = {directory}/$(JOB).out\n\
         error = {directory}/$(JOB).err\n\
         notification = Never\n\
         should_transfer_files = {transfer}\n",
        sanitize_comment(run.workflow.name()),
        sanitize_comment(run.run),
        file_layout::SCRIPTS_DIRECTORY,
        with_subject("the name of the token file", submit_files::render_environment(&run.credentials))?,
    );
    submit_files::write_credentials(&mut text, &run.credentials, vec!["$(sent)".to_owned()])?;
    text.push_str(SUBMIT_FILE_BODY);
    text.push_str(INCLUDE_NEXT_ATTEMPT);
    submit_files::write_accounting(&mut text, run.accounting)?;
    writeln!(text, "MY.WindlassRun = {}", with_subject("the run", quote::quote_classad(run.run))?).ok();
    text.push_str("queue\n");
    Ok(text)
}
