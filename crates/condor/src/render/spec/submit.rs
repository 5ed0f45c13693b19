//! The one submit file of a workflow spec. DAGMan reads it for each attempt of each job.

use super::{SpecRun, Transfer};
use crate::layout;
use crate::render::outer::comment;
use crate::render::quote;
use crate::render::submits::{self, NEXT_ATTEMPT, absolute};
use crate::render::{RenderError, named};
use std::fmt::Write as _;

/// What jobs differ in is in the VARS of the DAG. Output files are fetched after success alone: one that is missing would
/// hold the job, and nobody would learn how it ended. HTCondor itself tries nothing again.
const BODY: &str = "\
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

pub(super) fn submit_file(run: &SpecRun<'_>) -> Result<String, RenderError> {
    let path = |what: &str, path| named(what, quote::value(absolute(what, path)?));
    let home = path("the directory of the workflow", run.submission_dir)?;
    let directory = path("the directory of the run", run.directory)?;
    let transfer = match run.transfer {
        Transfer::IfNeeded => "IF_NEEDED",
        Transfer::Always => "YES",
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
        comment(run.workflow.name()),
        comment(run.run),
        layout::SCRIPTS,
        named("the name of the token file", submits::environment(&run.credentials))?,
    );
    submits::credentials(&mut text, &run.credentials, vec!["$(sent)".to_owned()])?;
    text.push_str(BODY);
    text.push_str(NEXT_ATTEMPT);
    submits::accounting(&mut text, run.accounting)?;
    writeln!(text, "MY.WindlassRun = {}", named("the run", quote::classad(run.run))?).ok();
    text.push_str("queue\n");
    Ok(text)
}
