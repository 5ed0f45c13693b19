//! References to workflows and jobs on the command line; `object_selection.rs` resolves them.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::convert::Infallible;
use std::str::FromStr;
use windlass_types::{JobId, JobStatus, WorkflowId};

/// A parser of job states with the values that a shell can complete.
pub(crate) fn job_status_parser() -> impl TypedValueParser<Value = JobStatus> {
    let names = JobStatus::ALL.map(JobStatus::name);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<JobStatus>())
}

/// A reference to a workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WorkflowRef {
    /// The newest workflow.
    Last,
    Id(WorkflowId),
    /// A name, or a prefix of a name or uuid.
    Name(String),
}

impl FromStr for WorkflowRef {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text.parse() {
            Ok(id) => Self::Id(id),
            Err(_) if text == "last" => Self::Last,
            Err(_) => Self::Name(text.to_owned()),
        })
    }
}

/// One word that may refer to several workflows: `3`, `1-5,9`, `last`, a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkflowSet(pub(crate) Vec<WorkflowSetPart>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WorkflowSetPart {
    One(WorkflowRef),
    /// The existing workflows with ids in this range, inclusive.
    Range(WorkflowId, WorkflowId),
}

impl FromStr for WorkflowSet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A comma separates only numbers: names may contain any character.
        let is_list = text.chars().all(|c| c.is_ascii_digit() || matches!(c, ',' | '-'))
            || text.split(',').any(|part| part == "last");
        let parts: Vec<&str> = if is_list { text.split(',').collect() } else { vec![text] };
        parts.into_iter().map(parse_workflow_part).collect::<Result<_, _>>().map(Self)
    }
}

fn parse_workflow_part(text: &str) -> Result<WorkflowSetPart, String> {
    if text.is_empty() {
        return Err("a value is missing beside a comma".to_owned());
    }
    let Some((first, last)) =
        text.split_once('-').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)))
    else {
        let Ok(one) = text.parse();
        return Ok(WorkflowSetPart::One(one));
    };
    if first > last {
        return Err(format!("the start of the range {text} is greater than its end"));
    }
    Ok(WorkflowSetPart::Range(WorkflowId(first), WorkflowId(last)))
}

/// A reference to a job of a workflow. A number may be an id or a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobRef {
    pub(crate) text: String,
    pub(crate) id: Option<JobId>,
}

impl FromStr for JobRef {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self { text: text.to_owned(), id: text.parse().ok() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(text: &str) -> Vec<WorkflowSetPart> {
        text.parse::<WorkflowSet>().unwrap().0
    }

    fn one(id: i64) -> WorkflowSetPart {
        WorkflowSetPart::One(WorkflowRef::Id(WorkflowId(id)))
    }

    fn named(name: &str) -> WorkflowSetPart {
        WorkflowSetPart::One(WorkflowRef::Name(name.to_owned()))
    }

    #[test]
    fn workflow_set_takes_comma_separated_ids_and_ranges() {
        assert_eq!(ids("7"), [one(7)]);
        assert_eq!(ids("1-5,9"), [WorkflowSetPart::Range(WorkflowId(1), WorkflowId(5)), one(9)]);
        assert_eq!(ids("2,last"), [one(2), WorkflowSetPart::One(WorkflowRef::Last)]);
    }

    #[test]
    fn workflow_names_with_commas_stay_whole() {
        for name in ["sim", "sim-2024", "a,b", "2024-run"] {
            assert_eq!(ids(name), [named(name)]);
        }
    }

    #[test]
    fn invalid_sets_are_rejected() {
        for (text, reason) in [("5-1", "greater than its end"), ("1,,2", "missing"), ("1,", "missing")] {
            let error = text.parse::<WorkflowSet>().unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
