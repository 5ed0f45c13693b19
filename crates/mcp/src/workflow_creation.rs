//! Creation of workflows from specs without a command line: on a server, on behalf of its caller.

use crate::agent_session::{AgentSession, SpecText, ToolError};
use serde_json::{Value, json};
use windlass_insight::workflow_creation::{self, WorkflowCreationOptions};
use windlass_spec::{NoAttachments, SpecSource};
use windlass_store::Store;
use windlass_types::digest_bytes;

/// Output directory below the directory in which jobs run.
const OUTPUT_FOLDER: &str = "windlass_output";

/// Stores the workflow of a spec and returns its summary. The store sets the authenticated caller as the owner;
/// `user` is the expected name.
pub fn create_workflow(
    store: &dyn Store,
    spec: &SpecText,
    working_dir: Option<&str>,
    user: &str,
) -> Result<Value, ToolError> {
    let directory = working_dir
        .filter(|directory| directory.starts_with('/'))
        .ok_or_else(|| {
            ToolError::new("the directory in which the jobs run is not known")
                .with_hint("set working_dir to that directory, absolute, on the machines of the workers")
        })?
        .trim_end_matches('/');
    let source = SpecSource::new("spec", spec.0.as_bytes());
    let workflow = windlass_spec::load_spec(source, &NoAttachments)
        .map_err(|found| ToolError::new(format!("the spec has {} errors", found.count())))?;
    let origin = WorkflowCreationOptions {
        user,
        submission_dir: if directory.is_empty() { "/" } else { directory },
        output_dir: &format!("{directory}/{OUTPUT_FOLDER}"),
        spec_path: None,
        spec_digest: &digest_bytes(spec.0.as_bytes()),
    };
    let id = workflow_creation::create_workflow(store, &workflow, origin, None, AgentSession::now())?;
    Ok(
        json!({ "workflow_id": id, "name": workflow.name(), "jobs": workflow.job_count(), "working_dir": directory }),
    )
}
