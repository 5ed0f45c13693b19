//! The jobs of a spec, as the comparison wants them.

use super::Books;
use super::books::environment;
use crate::spec_jobs;
use std::borrow::Cow;
use windlass_core::edges::Edges;
use windlass_core::reuse::Definition;
use windlass_spec::Workflow;
use windlass_store::model::Params;
use windlass_types::settings::ChangeDetection;

pub(crate) struct Planned<'a, 's> {
    workflow: &'a Workflow<'s>,
    edges: Edges,
    /// Commands may hold ids of user data. They are compared as if the new workflow had the ids of the old one.
    first_user_data: i64,
    /// By number: whether a job writes it.
    written: Vec<bool>,
}

impl<'a, 's> Planned<'a, 's> {
    pub(crate) fn new(workflow: &'a Workflow<'s>, earlier: Option<&Books<'_>>) -> Self {
        let first = earlier.and_then(|books| books.user_data().first()).map_or(1, |piece| piece.id.0);
        let mut written = vec![false; workflow.user_data_count()];
        if !written.is_empty() {
            let outputs = workflow.jobs().flat_map(|job| job.output_user_data()).flatten();
            outputs.for_each(|&number| written[number as usize] = true);
        }
        Self { workflow, edges: spec_jobs::edges(workflow), first_user_data: first, written }
    }

    pub(crate) fn workflow(&self) -> &'a Workflow<'s> {
        self.workflow
    }

    pub(crate) fn count(&self) -> u32 {
        self.workflow.job_count() as u32
    }

    pub(crate) fn edges(&self) -> &Edges {
        &self.edges
    }

    pub(super) fn compares_contents(&self) -> bool {
        self.workflow.settings().change_detection == Some(ChangeDetection::Content)
    }

    pub(super) fn definition(&self, number: u32) -> Definition<'a> {
        let job = self.workflow.job(number as usize);
        let kind = job.kind.map(|kind| &self.workflow.kinds()[kind as usize]);
        let kind_env = kind.map_or(&[][..], |kind| &kind.env);
        let own_env = job.env();
        let script = job.invocation_script().or_else(|| kind?.invocation_script.clone());
        let params = job.parameters().into_iter().map(|(name, value)| (name.to_owned(), value.to_json()));
        let inputs = numbers(job.input_user_data()).into_iter().filter(|n| !self.written[*n as usize]);
        Definition {
            name: Cow::Borrowed(job.name),
            command: job.command(self.first_user_data),
            invocation_script: script.map(Cow::Owned),
            env: Cow::Owned(environment(
                &[self.workflow.env(), kind_env, &own_env],
                &Params(params.collect()),
            )),
            user_data: inputs.map(|number| self.user_data(number)).collect(),
            inputs: self.paths(job.input_files()),
            outputs: self.paths(job.output_files()),
            depends_on: None,
        }
    }

    fn paths(&self, lists: impl Iterator<Item = &'a [u32]>) -> Vec<Cow<'a, str>> {
        numbers(lists).into_iter().map(|number| self.workflow.file(number as usize).path).collect()
    }

    fn user_data(&self, number: u32) -> (Cow<'a, str>, Cow<'a, str>) {
        let piece = self.workflow.user_data(number as usize);
        let text = piece.data.map_or_else(|| "null".to_owned(), |data| data.to_string());
        (Cow::Borrowed(piece.name), Cow::Owned(text))
    }
}

/// Each once.
fn numbers<'l>(lists: impl Iterator<Item = &'l [u32]>) -> Vec<u32> {
    let mut all: Vec<u32> = lists.flatten().copied().collect();
    all.sort_unstable();
    all.dedup();
    all
}
