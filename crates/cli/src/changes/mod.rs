//! What would run and what is reused: gathers how things were (the books), how they are to be (a spec, or the same
//! books) and how the files are, and has `windlass_core::reuse` decide. Shared by `plan`, `reinit`, `reset-status`
//! and `run`.

mod books;
mod data;
mod pages;
mod planned;
mod present;
mod words;

pub(crate) use books::Books;
pub(crate) use planned::Planned;
pub(crate) use words::ReasonView;

use crate::error::{CliError, Kind};
use crate::ui::text;
use present::Present;
use std::collections::HashMap;
use windlass_core::reuse::{self, Accept, Decision, Question, Reason, Summary};
use windlass_insight::making::{Reused, ReusedJob};
use windlass_store::model::{DoneWork, WorkflowRow};
use windlass_types::settings::ChangeDetection;
use windlass_types::{JobId, JobStatus, WorkflowId};

/// A reason longer than this is cut where there is one line for it.
const LONGEST: usize = 100;

/// What becomes of each job, by number, compared with an earlier workflow or with an earlier run.
pub(crate) struct Changes {
    pub(crate) decisions: Vec<Decision>,
    pub(crate) compared_with: WorkflowId,
    /// The files as they were when that was decided.
    files: Present,
}

impl Changes {
    pub(crate) fn summary(&self) -> Summary {
        Summary::of(&self.decisions)
    }

    /// What an earlier run has done already.
    pub(crate) fn is_reused(&self, number: u32) -> bool {
        !self.decisions[number as usize].runs()
    }

    /// `(number, why)` of each job that runs.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u32, &Reason)> {
        (0u32..).zip(&self.decisions).filter_map(|(number, decision)| match decision {
            Decision::Run(reason) => Some((number, reason)),
            Decision::Reuse => None,
        })
    }
}

/// How the comparison is to be made.
#[derive(Clone, Copy, Default)]
pub(crate) struct Terms<'a> {
    /// Files are told apart by what is in them, also where the workflow does not ask for it.
    pub(crate) content: bool,
    /// Changes that mean nothing.
    pub(crate) accepted: &'a [Accept],
    /// The workflow was made from this very text and goes on: what its jobs have added is still part of it.
    pub(crate) same_text: bool,
}

fn refuse_unknown(accepted: &[Accept], is_known: impl Fn(&str) -> bool) -> Result<(), CliError> {
    let named = accepted.iter().filter_map(|accept| accept.job.as_deref());
    match named.into_iter().find(|name| !is_known(name)) {
        Some(name) => Err(CliError::user(format!("--accept names `{name}`, and there is no such job"))),
        None => Ok(()),
    }
}

/// Compares a spec with the workflow that an earlier version of it made.
pub(crate) fn of_spec(
    books: &Books<'_>,
    planned: &Planned<'_, '_>,
    terms: Terms<'_>,
) -> Result<Changes, CliError> {
    refuse_unknown(terms.accepted, |name| planned.workflow().jobs().any(|job| job.name == name))?;
    let files = Present::new(books.row(), terms.content || planned.compares_contents());
    let before = |name: &str| {
        let number = books.number(name)?;
        let mut before = books.before(number);
        before.definition.depends_on = books.depends_on(number);
        before.has_added = !terms.same_text && books.has_added(number);
        Some(before)
    };
    let question = Question {
        jobs: planned.count(),
        edges: planned.edges(),
        now: &|number| planned.definition(number),
        before: &|_, name| before(name),
        file: &|path| files.state(path),
        is_shared: &|path| files.is_shared(path, || planned.all_paths()),
        accepted: terms.accepted,
    };
    let decisions = decide(&question, books)?;
    Ok(Changes { decisions, compared_with: books.row().id, files })
}

/// Finds what the next run of a workflow would do.
pub(crate) fn of_workflow(books: &Books<'_>, terms: Terms<'_>) -> Result<Changes, CliError> {
    refuse_unknown(terms.accepted, |name| books.number(name).is_some())?;
    let files = Present::new(books.row(), terms.content || compares_contents(books.row()));
    let question = Question {
        jobs: books.count(),
        edges: books.edges(),
        now: &|number| books.definition(number),
        before: &|number, _| Some(books.before(number)),
        file: &|path| files.state(path),
        is_shared: &|path| files.is_shared(path, || books.paths()),
        accepted: terms.accepted,
    };
    let decisions = decide(&question, books)?;
    Ok(Changes { decisions, compared_with: books.row().id, files })
}

fn decide(question: &Question<'_>, books: &Books<'_>) -> Result<Vec<Decision>, CliError> {
    let decisions = reuse::decide(question).map_err(|cycle| CliError::new(Kind::Spec, cycle.to_string()))?;
    // What could not be read was taken for missing; the decision is worth nothing then.
    books.trouble()?;
    Ok(decisions)
}

/// What the new workflow takes over from the earlier one. With each job goes what is known of its work, so that the new
/// workflow needs the earlier one no more: that may run again or be deleted.
pub(crate) fn reused(books: &Books<'_>, planned: &Planned<'_, '_>, changes: &Changes) -> Reused {
    let workflow = planned.workflow();
    let earlier = |number: u32| {
        let old = books.number(workflow.job(number as usize).name)?;
        // What was left out on purpose has done nothing that could be taken over.
        let old = (books.status(old) == JobStatus::Completed).then_some(old)?;
        let Some(work) = books.record(old) else {
            return Some(ReusedJob { from: books.id(old), work: None });
        };
        let files = changes.files.seen(&planned.inputs(number), &planned.outputs(number));
        // A job that was itself reused points to the one that ran.
        Some(ReusedJob { from: work.done_by.job, work: Some(DoneWork { files, ..work.clone() }) })
    };
    let jobs: Vec<Option<ReusedJob>> = (0u32..)
        .zip(&changes.decisions)
        .map(|(number, decision)| if decision.runs() { None } else { earlier(number) })
        .collect();
    let mut user_data = HashMap::new();
    if workflow.user_data_count() > 0 {
        let old: HashMap<&str, &serde_json::Value> = books
            .user_data()
            .iter()
            .filter_map(|piece| Some((piece.name.as_str(), piece.data.as_ref()?)))
            .collect();
        for (job, _) in workflow.jobs().zip(&jobs).filter(|(_, reused)| reused.is_some()) {
            for &number in job.output_user_data().flatten() {
                if let Some(data) = old.get(workflow.user_data(number as usize).name) {
                    user_data.insert(number, (*data).clone());
                }
            }
        }
    }
    Reused { jobs, user_data }
}

/// In a line: how much is reused, how much runs, and the first thing that changed.
pub(crate) fn headline(changes: &Changes, name: impl Fn(u32) -> String) -> String {
    let summary = changes.summary();
    let jobs = text::count(summary.reused.into(), "job");
    let own = |(_, reason): &(u32, &Reason)| !matches!(reason, Reason::Upstream { .. });
    let Some((first, reason)) = changes.runs().find(own) else {
        return format!("{jobs} reused, nothing to run");
    };
    let first =
        text::truncate(&text::one_line(&format!("{}: {}", name(first), reason.describe(&name))), LONGEST);
    let more = match summary.runs() {
        1 => String::new(),
        n => format!(", and {} more", n - 1),
    };
    format!("{jobs} reused, {} to run; {first}{more}", summary.runs())
}

/// The jobs of a workflow that go back to the start for these decisions: those that are over.
pub(crate) fn going_back(books: &Books<'_>, changes: &Changes) -> Vec<JobId> {
    let is_over = |number: u32| {
        let status = books.status(number);
        status.is_settled() || status == JobStatus::PendingFailed
    };
    changes.runs().filter(|(number, _)| is_over(*number)).map(|(number, _)| books.id(number)).collect()
}

pub(crate) fn compares_contents(row: &WorkflowRow) -> bool {
    row.settings.change_detection == Some(ChangeDetection::Content)
}
