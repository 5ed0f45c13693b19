//! A spec as decoded: names not yet looked up. Compact, because there may be a million jobs; [`crate::Workflow`] is the
//! comfortable view.

use crate::source::Span;
use crate::text::{Text, Texts};
use windlass_types::Resources;
use windlass_types::work::Stdio;

/// A workflow spec, decoded but not resolved.
#[derive(Clone, Debug)]
pub struct Spec<'s> {
    pub(crate) texts: Texts<'s>,
    pub(crate) name: Text,
    pub(crate) user: Option<Text>,
    pub(crate) description: Option<Text>,
    pub(crate) stdio: Stdio,
    pub(crate) env: List,
    pub(crate) requirements: Vec<RequirementsSpec>,
    pub(crate) jobs: Vec<JobSpec>,
    /// What all `env` lists point into. A map that several jobs share through an alias stands here once.
    pub(crate) variables: Vec<(String, String)>,
    /// What all `depends_on` lists point into. A list that several jobs share through an alias stands here once.
    pub(crate) dependencies: Vec<Named>,
    /// Every requirement name that jobs use, once.
    pub(crate) requirement_names: Vec<Box<str>>,
}

impl<'s> Spec<'s> {
    pub(crate) fn new(source: &'s str) -> Self {
        Self {
            texts: Texts::new(source),
            name: Text::default(),
            user: None,
            description: None,
            stdio: Stdio::default(),
            env: List::default(),
            requirements: Vec::new(),
            jobs: Vec::new(),
            variables: Vec::new(),
            dependencies: Vec::new(),
            requirement_names: Vec::new(),
        }
    }

    pub(crate) fn job_name(&self, job: u32) -> &str {
        self.texts.get(self.jobs[job as usize].name.text)
    }
}

/// A named set of requirements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequirementsSpec {
    pub name: String,
    pub resources: Resources,
    pub(crate) span: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct JobSpec {
    pub(crate) name: Named,
    pub(crate) command: Text,
    pub(crate) depends_on: List,
    pub(crate) env: List,
    pub(crate) requirements: Option<RequirementsUse>,
    pub(crate) priority: i32,
    pub(crate) cancel_on_blocking_job_failure: bool,
}

/// A name and where it is written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Named {
    pub(crate) text: Text,
    pub(crate) span: Span,
}

/// A stretch of one of the lists in [`Spec`]. Two lists are the same one, or share nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct List {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl List {
    pub(crate) fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }

    pub(crate) fn is_empty(self) -> bool {
        self.start == self.end
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RequirementsUse {
    /// Index into [`Spec::requirement_names`].
    pub(crate) name: u32,
    pub(crate) span: Span,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_stays_small() {
        assert!(size_of::<JobSpec>() <= 64, "{}", size_of::<JobSpec>());
    }
}
