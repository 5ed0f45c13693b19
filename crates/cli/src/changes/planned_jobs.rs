//! The jobs of a spec in the form that the comparison needs.

use super::stored_jobs::merge_environment;
use super::{StoredJobs, user_data};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use windlass_core::dependency_edges::DependencyEdges;
use windlass_core::reuse::{self, NameSetDigest, ReuseDefinition};
use windlass_insight::workflow_creation;
use windlass_spec::ResolvedWorkflow;
use windlass_store::model::{JobParameters, UserDataRow};
use windlass_types::settings::ChangeDetection;

pub(crate) struct PlannedJobs<'a, 's> {
    workflow: &'a ResolvedWorkflow<'s>,
    edges: DependencyEdges,
    /// Dependencies by job number.
    depends_on: Vec<NameSetDigest>,
    /// User data by job number, in the form that the comparison needs.
    user_data: Vec<SpecUserData>,
}

/// Commands contain ids of user data. They are compared as if user data of the same name had the ids of the
/// earlier workflow.
struct SpecUserData {
    id: i64,
    /// Readers of a job's output are compared with the output of the earlier workflow; if the job has to run
    /// again, its readers run anyway.
    previous_value: Option<String>,
}

impl<'a, 's> PlannedJobs<'a, 's> {
    pub(crate) fn new(workflow: &'a ResolvedWorkflow<'s>, earlier: Option<&StoredJobs<'_>>) -> Self {
        let edges = workflow_creation::dependency_edges(workflow);
        let name = |number: u32| NameSetDigest::from_names([workflow.job(number as usize).name]);
        let depends_on = earlier
            .map(|_| reuse::dependency_digests(workflow.job_count() as u32, &edges, name))
            .unwrap_or_default();
        Self { workflow, edges, depends_on, user_data: plan_user_data(workflow, earlier) }
    }

    pub(crate) fn workflow(&self) -> &'a ResolvedWorkflow<'s> {
        self.workflow
    }

    pub(crate) fn count(&self) -> u32 {
        self.workflow.job_count() as u32
    }

    pub(crate) fn edges(&self) -> &DependencyEdges {
        &self.edges
    }

    pub(super) fn compares_contents(&self) -> bool {
        self.workflow.settings().change_detection == Some(ChangeDetection::Content)
    }

    pub(super) fn definition(&self, number: u32) -> ReuseDefinition<'a> {
        let job = self.workflow.job(number as usize);
        let kind = job.group.map(|kind| &self.workflow.job_groups()[kind as usize]);
        let kind_env = kind.map_or(&[][..], |kind| &kind.env);
        let own_env = job.env();
        let script = job.invocation_script().or_else(|| kind?.invocation_script.clone());
        let params = job.parameters().into_iter().map(|(name, value)| (name.to_owned(), value.to_json()));
        ReuseDefinition {
            name: Cow::Borrowed(job.name),
            command: job.command_with(|number| self.user_data[number as usize].id),
            invocation_script: script.map(Cow::Owned),
            env: Cow::Owned(merge_environment(
                &[self.workflow.env(), kind_env, &own_env],
                &JobParameters(params.collect()),
            )),
            user_data: unique_numbers(job.input_user_data())
                .into_iter()
                .map(|n| self.data_name_and_text(n))
                .collect(),
            output_user_data: unique_numbers(job.output_user_data())
                .into_iter()
                .map(|n| self.data_name(n))
                .collect(),
            inputs: self.paths(job.input_files()),
            outputs: self.paths(job.output_files()),
            depends_on: self.depends_on.get(number as usize).copied(),
        }
    }

    /// The paths of all declared files.
    pub(super) fn all_paths(&self) -> BTreeSet<String> {
        (0..self.workflow.file_count()).map(|number| self.workflow.file(number).path.into_owned()).collect()
    }

    pub(super) fn inputs(&self, number: u32) -> Vec<Cow<'a, str>> {
        self.paths(self.workflow.job(number as usize).input_files())
    }

    pub(super) fn outputs(&self, number: u32) -> Vec<Cow<'a, str>> {
        self.paths(self.workflow.job(number as usize).output_files())
    }

    fn paths(&self, lists: impl Iterator<Item = &'a [u32]>) -> Vec<Cow<'a, str>> {
        unique_numbers(lists).into_iter().map(|number| self.workflow.file(number as usize).path).collect()
    }

    fn data_name(&self, number: u32) -> Cow<'a, str> {
        Cow::Borrowed(self.workflow.user_data(number as usize).name)
    }

    fn data_name_and_text(&self, number: u32) -> (Cow<'a, str>, Cow<'a, str>) {
        let piece = self.workflow.user_data(number as usize);
        let written = || piece.data.map_or_else(|| "null".to_owned(), |data| data.to_string());
        let text = self.user_data[number as usize].previous_value.clone().unwrap_or_else(written);
        (Cow::Borrowed(piece.name), Cow::Owned(text))
    }
}

fn plan_user_data(workflow: &ResolvedWorkflow<'_>, earlier: Option<&StoredJobs<'_>>) -> Vec<SpecUserData> {
    if workflow.user_data_count() == 0 {
        return Vec::new();
    }
    let known = earlier.map_or(&[][..], StoredJobs::user_data).iter();
    let known: HashMap<&str, &UserDataRow> = known.map(|piece| (piece.name.as_str(), piece)).collect();
    let named = |number: usize| known.get(workflow.user_data(number).name);
    // 0 is never a valid id.
    let id = |number: usize| named(number).map_or(0, |piece| piece.id.0);
    let mut all: Vec<SpecUserData> = (0..workflow.user_data_count())
        .map(|number| SpecUserData { id: id(number), previous_value: None })
        .collect();
    for &number in workflow.jobs().flat_map(|job| job.output_user_data()).flatten() {
        all[number as usize].previous_value =
            named(number as usize).map(|piece| user_data::current_text(piece));
    }
    all
}

/// Removes duplicates.
fn unique_numbers<'l>(lists: impl Iterator<Item = &'l [u32]>) -> Vec<u32> {
    let mut all: Vec<u32> = lists.flatten().copied().collect();
    all.sort_unstable();
    all.dedup();
    all
}
