//! Workflows made of specs where there is no command line to make them: at a server, in its caller's name.

use crate::desk::{Desk, SpecText, Trouble};
use serde_json::{Value, json};
use windlass_insight::making::{self, Origin};
use windlass_spec::{NoAttachments, Source};
use windlass_store::Store;
use windlass_types::digest;

/// Below the directory in which jobs run.
const OUTPUT: &str = "windlass_output";

/// Puts the workflow of a spec into the books and says what there is now. It belongs to whoever the books know as the one
/// who asks; `user` is who that is likely to be.
pub fn make_workflow(
    books: &dyn Store,
    spec: &SpecText,
    working_dir: Option<&str>,
    user: &str,
) -> Result<Value, Trouble> {
    let directory = working_dir
        .filter(|directory| directory.starts_with('/'))
        .ok_or_else(|| {
            Trouble::refused("nobody knows where the jobs of this workflow are to run")
                .with_hint("working_dir names that directory, absolute, on the machines of the workers")
        })?
        .trim_end_matches('/');
    let source = Source::new("spec", spec.0.as_bytes());
    let workflow = windlass_spec::load(source, &NoAttachments)
        .map_err(|found| Trouble::refused(format!("the spec has {} mistakes", found.count())))?;
    let origin = Origin {
        user,
        submission_dir: if directory.is_empty() { "/" } else { directory },
        output_dir: &format!("{directory}/{OUTPUT}"),
        spec_path: None,
        spec_digest: &digest(spec.0.as_bytes()),
    };
    let id = making::create(books, &workflow, origin, None, Desk::now())?;
    Ok(
        json!({ "workflow_id": id, "name": workflow.name(), "jobs": workflow.job_count(), "working_dir": directory }),
    )
}
