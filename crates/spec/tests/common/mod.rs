//! Helpers shared by tests of specs.

use windlass_spec::{NoAttachments, SpecFormat, SpecSource, load_spec};

/// Describes a workflow in words, for comparison.
#[track_caller]
pub(crate) fn plan(format: SpecFormat, text: &str) -> Vec<String> {
    let source = SpecSource { name: "spec", text: text.as_bytes(), format: Some(format) };
    let workflow = load_spec(source, &NoAttachments).unwrap_or_else(|problems| panic!("{problems}"));
    let mut plan = vec![
        format!("{} {:?} {:?}", workflow.name(), workflow.user(), workflow.description()),
        format!("{:?} {:?} {:?}", workflow.env(), workflow.stdio(), workflow.settings()),
        format!("{:?} {:?}", workflow.failure_handlers(), workflow.schedulers()),
        format!("{:?} {:?}", workflow.actions(), workflow.job_groups()),
    ];
    plan.extend(workflow.requirements().iter().map(|it| format!("{} {:?}", it.name, it.resources)));
    plan.extend(workflow.files().map(|file| format!("{file:?}")));
    plan.extend(workflow.all_user_data().map(|data| format!("{data:?}")));
    plan.extend(workflow.jobs().map(|job| {
        let dependencies: Vec<u32> = job.depends_on().flatten().copied().collect();
        let files: Vec<&[u32]> = job.input_files().chain(job.output_files()).collect();
        let what = (job.name, job.command(1), job.env(), job.parameters(), job.requirements, job.priority);
        format!("{what:?} {dependencies:?} {files:?}")
    }));
    plan
}
