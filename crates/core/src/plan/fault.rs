//! What stands against a plan.

use serde::Serialize;

/// Says what is wrong where, and what can be done about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{at}: {what}; {remedy}")]
pub struct PlanFault {
    pub cause: Cause,
    /// A field of the request, a file, a lumi.
    pub at: String,
    pub what: String,
    pub remedy: String,
}

/// Who can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
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
const TOLD: usize = 20;

#[derive(Debug, Default)]
pub(super) struct Faults {
    told: Vec<PlanFault>,
    of_data: usize,
}

impl Faults {
    pub(super) fn request(&mut self, field: &str, what: impl Into<String>, remedy: &str) {
        self.told.push(fault(Cause::Request, field, what, remedy));
    }

    pub(super) fn nothing(&mut self, field: &str, what: impl Into<String>, remedy: &str) {
        self.told.push(fault(Cause::Nothing, field, what, remedy));
    }

    pub(super) fn sites(&mut self, field: &str, what: impl Into<String>, remedy: &str) {
        self.told.push(fault(Cause::Sites, field, what, remedy));
    }

    /// About one file or lumi of perhaps very many.
    pub(super) fn data(
        &mut self,
        cause: Cause,
        at: impl FnOnce() -> String,
        what: impl FnOnce() -> String,
        remedy: &str,
    ) {
        self.of_data += 1;
        if self.of_data <= TOLD {
            self.told.push(fault(cause, &at(), what(), remedy));
        }
    }

    pub(super) fn into_result(mut self) -> Result<(), Vec<PlanFault>> {
        if self.of_data > TOLD {
            let more = format!("{} more faults of files and lumis", self.of_data - TOLD);
            self.told.push(fault(Cause::Catalog, "input_dataset", more, "see to those above first"));
        }
        if self.told.is_empty() { Ok(()) } else { Err(self.told) }
    }
}

fn fault(cause: Cause, at: &str, what: impl Into<String>, remedy: &str) -> PlanFault {
    PlanFault { cause, at: at.to_owned(), what: what.into(), remedy: remedy.to_owned() }
}
