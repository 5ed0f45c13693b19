//! Workflows made of specs where there is no command line to make them: at a server, in its caller's name.

use crate::agent_session::{AgentSession, SpecText, ToolError};
use serde_json::{Value, json};
use windlass_insight::workflow_creation::{self, WorkflowOrigin};
use windlass_spec::{NoAttachments, SpecSource};
use windlass_store::Store;
use windlass_types::digest_bytes;

/// Below the directory in which jobs run.
const OUTPUT_FOLDER: &str = "windlass_output";

/// Puts the workflow of a spec into the books and says what there is now. It belongs to whoever the books know as the one
/// who asks; `user` is who that is likely to be.
pub fn create_workflow(
    books: &dyn Store,
    spec: &SpecText,
    working_dir: Option<&str>,
    user: &str,
) -> Result<Value, ToolError> {
    let directory = working_dir
        .filter(|directory| directory.starts_with('/'))
        .ok_or_else(|| {
            ToolError::new("nobody knows where the jobs of this workflow are to run")
                .with_hint("working_dir names that directory, absolute, on the machines of the workers")
        })?
        .trim_end_matches('/');
    let source = SpecSource::new("spec", spec.0.as_bytes());
    let workflow = windlass_spec::load_spec(source, &NoAttachments)
        .map_err(|found| ToolError::new(format!("the spec has {} mistakes", found.count())))?;
    let origin = WorkflowOrigin {
        user,
        submission_dir: if directory.is_empty() { "/" } else { directory },
        output_dir: &format!("{directory}/{OUTPUT_FOLDER}"),
        spec_path: None,
        spec_digest: &digest_bytes(spec.0.as_bytes()),
    };
    let id = workflow_creation::create_workflow(books, &workflow, origin, None, AgentSession::now())?;
    Ok(
        json!({ "workflow_id": id, "name": workflow.name(), "jobs": workflow.job_count(), "working_dir": directory }),
    )
}
