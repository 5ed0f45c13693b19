//! The submit files, one for each role, and the small files that they include when a node is submitted.

use super::outer_dag::sanitize_comment;
use super::quote::{self, EnvironmentValue, UnquotableText};
use super::{
    DagRenderError, QuotedFragments, RequestDagRun, STEP_PROFILE_FILE, StorageCredentials, with_subject,
};
use crate::file_layout;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use windlass_types::requests::NodeRole;
use windlass_types::{Bytes, Resources};

/// Merge and cleanup nodes run before nodes of units that have just started.
const FINISHING_PRIORITY_BONUS: i32 = 10;

/// Returns the priority of nodes of a role in a run of this priority.
pub fn node_priority(run: i32, role: NodeRole) -> i32 {
    let finishing =
        if matches!(role, NodeRole::Merge | NodeRole::Cleanup) { FINISHING_PRIORITY_BONUS } else { 0 };
    run.saturating_add(finishing)
}

pub(super) const fn submit_file_name(role: NodeRole) -> &'static str {
    match role {
        NodeRole::Landing => "landing.sub",
        NodeRole::Processing => "processing.sub",
        NodeRole::Merge => "merge.sub",
        NodeRole::Cleanup => "cleanup.sub",
    }
}

/// Renders the submit file of a role. DAGMan reads it in the directory of the unit, so the run is one level
/// above.
pub(super) fn render_submit_file(
    run: &RequestDagRun<'_>,
    words: &QuotedFragments<'_>,
    role: NodeRole,
) -> Result<String, DagRenderError> {
    let mut text = format!(
        "# {role} nodes of request {}, run {}.\n",
        sanitize_comment(run.request),
        sanitize_comment(run.run)
    );
    write_program(&mut text, run, role)?;
    write_transfer(&mut text, run, words, role)?;
    write_resources(&mut text, run, role);
    write_site_requirements(&mut text, role);
    write_job_attributes(&mut text, run, role)?;
    text.push_str("queue\n");
    Ok(text)
}

fn write_program(text: &mut String, run: &RequestDagRun<'_>, role: NodeRole) -> Result<(), DagRenderError> {
    let path = run.programs.on_workers.unwrap_or(run.programs.on_this_host);
    let sent = run.programs.on_workers.is_none();
    let arguments = match role {
        // Cleanup deletes results; only files at the top of its directory are transferred back.
        NodeRole::Landing => "payload land $(unit).json --report landing.json",
        NodeRole::Processing => "payload run $(unit).json --node $(index) --results .",
        NodeRole::Merge => "payload merge $(unit).json --results .",
        NodeRole::Cleanup => "payload cleanup $(unit).json --results .",
    };
    let path = absolute_path("the path of windlass", path)?;
    write!(
        text,
        "universe = vanilla\n\
         executable = {}\n\
         transfer_executable = {sent}\n\
         arguments = \"{arguments}\"\n\
         # Retries are counted from 0, attempts from 1.\n\
         attempt = $(RETRY) + 1\n\
         environment = {}\n\
         output = $(JOB).out\n\
         error = $(JOB).err\n\
         notification = Never\n",
        with_subject("the path of windlass", quote::check_value(path))?,
        with_subject("the name of the token file", render_environment(&run.credentials))?,
    )
    .ok();
    Ok(())
}

pub(super) fn render_environment(credentials: &StorageCredentials<'_>) -> Result<String, UnquotableText> {
    let token = credentials.token.and_then(Path::file_name).map(|name| name.to_string_lossy());
    let mut variables = vec![
        ("WINDLASS_SITE", EnvironmentValue::Macro("$$(GLIDEIN_CMSSite:Unknown)")),
        ("WINDLASS_ATTEMPT", EnvironmentValue::Macro("$INT(attempt)")),
    ];
    // Jobs start in the directory where the file is put.
    variables.extend(token.as_ref().map(|name| ("BEARER_TOKEN_FILE", EnvironmentValue::Text(name))));
    quote::quote_environment(variables)
}

/// No files are shared with workers. Reports are written where the job starts, and all new files there are
/// transferred back: an explicit list would hold a job that writes no report.
fn write_transfer(
    text: &mut String,
    run: &RequestDagRun<'_>,
    words: &QuotedFragments<'_>,
    role: NodeRole,
) -> Result<(), DagRenderError> {
    let mut sent = vec!["../$(unit).json".to_owned()];
    match role {
        NodeRole::Processing if words.has_profile => sent.push(format!("../{STEP_PROFILE_FILE}")),
        NodeRole::Landing | NodeRole::Processing => {}
        NodeRole::Merge => sent.push("$(reports)".to_owned()),
        NodeRole::Cleanup => sent.push("merge_output.json".to_owned()),
    }
    text.push_str("should_transfer_files = YES\nwhen_to_transfer_output = ON_EXIT\n");
    write_credentials(text, &run.credentials, sent)
}

/// Writes the files to transfer, including the credentials for storage.
pub(super) fn write_credentials(
    text: &mut String,
    credentials: &StorageCredentials<'_>,
    mut sent: Vec<String>,
) -> Result<(), DagRenderError> {
    if let Some(path) = credentials.token {
        let what = "the path of the token";
        let path = with_subject(what, quote::check_transfer_path(absolute_path(what, path)?))?;
        sent.push(path.to_owned());
        writeln!(text, "encrypt_input_files = {path}").ok();
    }
    if let Some(path) = credentials.proxy {
        let what = "the path of the proxy";
        writeln!(
            text,
            "x509userproxy = {}",
            with_subject(what, quote::check_value(absolute_path(what, path)?))?
        )
        .ok();
    }
    writeln!(text, "transfer_input_files = {}", sent.join(", ")).ok();
    Ok(())
}

/// Resources from the VARS of the node, which stay as planned; memory set by an operator overrides them.
fn write_resources(text: &mut String, run: &RequestDagRun<'_>, role: NodeRole) {
    let memory = run.memory_override(role).map_or_else(|| "$(memory)".to_owned(), |mb| mb.to_string());
    writeln!(text, "request_cpus = $(cpus)\nrequest_memory = {memory}").ok();
    text.push_str(OTHER_RESOURCES);
}

/// Time without transfers; a job that takes longer is held with code 47.
const OTHER_RESOURCES: &str = "\
request_disk = $(disk)
allowed_execute_duration = $(runtime)
minutes = $(runtime) / 60 + 1
MY.MaxWallTimeMins = $INT(minutes)
";

/// Where the job may run. Machines advertise their site as `GLIDEIN_CMSSite`, and the event log records it for
/// each job.
fn write_site_requirements(text: &mut String, role: NodeRole) {
    text.push_str("ulog_execute_attrs = GLIDEIN_CMSSite\n");
    let allowed = "stringListMember(TARGET.GLIDEIN_CMSSite, MY.DESIRED_Sites)";
    let (desired, also) = match role {
        NodeRole::Landing => (
            format!("include : ../{}\nMY.DESIRED_Sites = \"$(sites)\"", file_layout::BANS_FILE),
            " && !stringListMember(TARGET.GLIDEIN_CMSSite, \"$(banned)\")",
        ),
        _ => (format!("include : {}", file_layout::ELECTED_SITE_FILE), ""),
    };
    writeln!(text, "{desired}\nrequirements = {allowed}{also}").ok();
    text.push_str(INCLUDE_NEXT_ATTEMPT);
}

/// `include ifexist` fails under DAGMan if the file does not exist. This prints nothing then.
pub(super) const INCLUDE_NEXT_ATTEMPT: &str = "\
# Resources changed after the last attempt, if any.
include command : grep -hs = $(JOB).inc
";

/// Attributes for accounting and for people who look at the queue.
fn write_job_attributes(
    text: &mut String,
    run: &RequestDagRun<'_>,
    role: NodeRole,
) -> Result<(), DagRenderError> {
    writeln!(text, "priority = {}", node_priority(run.priority, role)).ok();
    let own =
        [("CMS_RequestName", run.request), ("CMS_WorkflowID", run.workflow), ("CMS_NodeRole", role.name())];
    for (name, value) in own {
        writeln!(text, "MY.{name} = {}", with_subject(name, quote::quote_classad(value))?).ok();
    }
    write_accounting(text, run.accounting)
}

pub(super) fn write_accounting(
    text: &mut String,
    attributes: &BTreeMap<String, String>,
) -> Result<(), DagRenderError> {
    for (name, value) in attributes {
        let what = format!("accounting attribute {name}");
        match name.as_str() {
            "accounting_group" | "accounting_group_user" => {
                writeln!(text, "{name} = {}", with_subject(&what, quote::check_value(value))?).ok()
            }
            _ => {
                let name = with_subject(&what, quote::check_attribute_name(name))?;
                writeln!(text, "MY.{name} = {}", with_subject(&what, quote::quote_classad(value))?).ok()
            }
        };
    }
    Ok(())
}

pub(super) fn absolute_path<'p>(what: &str, path: &'p Path) -> Result<&'p str, DagRenderError> {
    let unfit = || UnquotableText {
        text: path.display().to_string(),
        place: "a path",
        why: "it is not UTF-8, or does not begin with `/`".to_owned(),
    };
    with_subject(what, path.to_str().filter(|text| text.starts_with('/')).ok_or_else(unfit))
}

/// Renders `bans.inc`.
pub(super) fn render_bans(sites: &[String]) -> Result<String, UnquotableText> {
    Ok(format!("banned = {}\n", quote::quote_site_list(sites)?))
}

/// Renders `elected.inc`: the site where a unit landed and where its other nodes run.
pub fn render_elected_site(site: &str) -> Result<String, UnquotableText> {
    Ok(format!("MY.DESIRED_Sites = \"{}\"\n", quote::quote_site_list([&site.to_owned()])?))
}

/// Renders `NODE.inc`: the resources of the next attempt of a node.
pub fn render_next_attempt(asked: &Resources) -> String {
    let megabyte = 1 << 20;
    let Bytes(memory) = asked.memory;
    let mut text = format!(
        "request_cpus = {}\nrequest_memory = {}\n",
        asked.cpus.max(1),
        memory.div_ceil(megabyte).max(1)
    );
    if let Some(runtime) = asked.runtime {
        let seconds = runtime.as_secs().max(1);
        write!(text, "allowed_execute_duration = {seconds}\nMY.MaxWallTimeMins = {}\n", seconds / 60 + 1)
            .ok();
    }
    text
}
