//! Problems that prevent a plan.

use serde::Serialize;

/// What is wrong, where, and a remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{at}: {what}; {remedy}")]
pub struct PlanProblem {
    pub cause: PlanProblemCause,
    /// A field of the request, a file, or a lumi.
    pub at: String,
    pub what: String,
    pub remedy: String,
}

/// The cause of a problem, and so who can solve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanProblemCause {
    /// The request is contradictory or cannot be satisfied. Permanent.
    Request,
    /// There is input, but nothing of it is (still) selected.
    Nothing,
    /// The catalog entry of a file is not sufficient for this request.
    Catalog,
    /// The usable sites are not sufficient. May change.
    Sites,
}

/// Maximum number of reported problems of files and lumis.
const MAX_REPORTED: usize = 20;

#[derive(Debug, Default)]
pub(super) struct PlanProblems {
    reported: Vec<PlanProblem>,
    data_count: usize,
}

impl PlanProblems {
    pub(super) fn add_request_problem(&mut self, field: &str, what: impl Into<String>, remedy: &str) {
        self.reported.push(make_problem(PlanProblemCause::Request, field, what, remedy));
    }

    pub(super) fn add_nothing_to_do(&mut self, field: &str, what: impl Into<String>, remedy: &str) {
        self.reported.push(make_problem(PlanProblemCause::Nothing, field, what, remedy));
    }

    pub(super) fn add_site_problem(&mut self, field: &str, what: impl Into<String>, remedy: &str) {
        self.reported.push(make_problem(PlanProblemCause::Sites, field, what, remedy));
    }

    /// Adds a problem of one file or lumi of possibly very many.
    pub(super) fn add_data_problem(
        &mut self,
        cause: PlanProblemCause,
        at: impl FnOnce() -> String,
        what: impl FnOnce() -> String,
        remedy: &str,
    ) {
        self.data_count += 1;
        if self.data_count <= MAX_REPORTED {
            self.reported.push(make_problem(cause, &at(), what(), remedy));
        }
    }

    pub(super) fn into_result(mut self) -> Result<(), Vec<PlanProblem>> {
        if self.data_count > MAX_REPORTED {
            let more = format!("{} more problems of files and lumis", self.data_count - MAX_REPORTED);
            self.reported.push(make_problem(
                PlanProblemCause::Catalog,
                "input_dataset",
                more,
                "solve those above first",
            ));
        }
        if self.reported.is_empty() { Ok(()) } else { Err(self.reported) }
    }
}

fn make_problem(cause: PlanProblemCause, at: &str, what: impl Into<String>, remedy: &str) -> PlanProblem {
    PlanProblem { cause, at: at.to_owned(), what: what.into(), remedy: remedy.to_owned() }
}
