//! What stands against a plan.

use serde::Serialize;

/// Says what is wrong where, and what can be done about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{at}: {what}; {remedy}")]
pub struct PlanProblem {
    pub cause: PlanProblemCause,
    /// A field of the request, a file, a lumi.
    pub at: String,
    pub what: String,
    pub remedy: String,
}

/// Who can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanProblemCause {
    /// The request contradicts itself or asks for what cannot be had. It stays so.
    Request,
    /// There is input, and nothing of it is wanted (any more).
    Nothing,
    /// What the catalog says about a file does not do for this request.
    Catalog,
    /// The sites that may be used do not do. May be otherwise tomorrow.
    Sites,
}

/// So many faults about files and lumis are told; more would only hide the others.
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

    /// About one file or lumi of perhaps very many.
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
            let more = format!("{} more faults of files and lumis", self.data_count - MAX_REPORTED);
            self.reported.push(make_problem(
                PlanProblemCause::Catalog,
                "input_dataset",
                more,
                "see to those above first",
            ));
        }
        if self.reported.is_empty() { Ok(()) } else { Err(self.reported) }
    }
}

fn make_problem(cause: PlanProblemCause, at: &str, what: impl Into<String>, remedy: &str) -> PlanProblem {
    PlanProblem { cause, at: at.to_owned(), what: what.into(), remedy: remedy.to_owned() }
}
