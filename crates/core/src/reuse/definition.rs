//! Job definitions for reuse of results, and the first difference between two of them.

use super::RerunReason;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash as _, Hasher as _};

/// Everything that determines what a job does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReuseDefinition<'a> {
    pub name: Cow<'a, str>,
    pub command: Cow<'a, str>,
    pub invocation_script: Option<Cow<'a, str>>,
    /// All its environment variables, from all levels of the spec. The order does not matter.
    pub env: Cow<'a, [(String, String)]>,
    /// Name and text (or digest) of each user data that it reads.
    pub user_data: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Names of the user data that it writes.
    pub output_user_data: Vec<Cow<'a, str>>,
    pub inputs: Vec<Cow<'a, str>>,
    pub outputs: Vec<Cow<'a, str>>,
    /// Its dependencies, if they count.
    pub depends_on: Option<NameSetDigest>,
}

/// A set of names, small enough to keep for each of a million jobs. Digests of disjoint sets can be added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameSetDigest {
    pub count: u32,
    sum: u64,
}

impl NameSetDigest {
    pub fn from_names<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        names.into_iter().fold(Self::default(), |digest, name| {
            let mut hasher = rustc_hash::FxHasher::default();
            name.hash(&mut hasher);
            digest + Self { count: 1, sum: hasher.finish() }
        })
    }
}

impl std::ops::Add for NameSetDigest {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { count: self.count + other.count, sum: self.sum.wrapping_add(other.sum) }
    }
}

/// A part of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DefinitionField {
    UserData,
    OutputUserData,
    Command,
    InvocationScript,
    Env,
    InputFiles,
    OutputFiles,
    DependsOn,
}

impl DefinitionField {
    /// In the order of comparison. User data first: commands contain their ids, which are less clear than
    /// names.
    pub const ALL: [Self; 8] = [
        Self::UserData,
        Self::OutputUserData,
        Self::Command,
        Self::InvocationScript,
        Self::Env,
        Self::InputFiles,
        Self::OutputFiles,
        Self::DependsOn,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::InvocationScript => "invocation_script",
            Self::Env => "env",
            Self::UserData => "user_data",
            Self::OutputUserData => "output_user_data",
            Self::InputFiles => "input_files",
            Self::OutputFiles => "output_files",
            Self::DependsOn => "depends_on",
        }
    }
}

impl fmt::Display for DefinitionField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A change accepted by the user as irrelevant: a field of a job, or of all jobs. Written `JOB:FIELD`, `JOB`
/// (any field) or `*:FIELD`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedChange {
    /// `None`: every job.
    pub job: Option<String>,
    /// `None`: every field.
    pub field: Option<DefinitionField>,
}

impl AcceptedChange {
    pub fn covers(&self, job: &str, field: DefinitionField) -> bool {
        self.job.as_deref().is_none_or(|accepted| accepted == job)
            && self.field.is_none_or(|accepted| accepted == field)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseAcceptError {
    #[error("`{0}` does not name a job; write JOB, JOB:FIELD or *:FIELD")]
    NoJob(String),
    #[error(
        "unknown field `{0}`; known: {known}", known = DefinitionField::ALL.map(DefinitionField::name).join(", ")
    )]
    UnknownField(String),
}

impl std::str::FromStr for AcceptedChange {
    type Err = ParseAcceptError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (job, field) = match text.rsplit_once(':') {
            Some((job, field)) => (job, Some(field)),
            None => (text, None),
        };
        if job.is_empty() {
            return Err(ParseAcceptError::NoJob(text.to_owned()));
        }
        let known = |name: &str| DefinitionField::ALL.into_iter().find(|field| field.name() == name);
        let field = match field {
            None => None,
            Some(name) => Some(known(name).ok_or_else(|| ParseAcceptError::UnknownField(name.to_owned()))?),
        };
        Ok(Self { job: (job != "*").then(|| job.to_owned()), field })
    }
}

/// Returns the first field that differs and is not accepted.
pub(super) fn find_difference(
    old: &ReuseDefinition<'_>,
    new: &ReuseDefinition<'_>,
    accepted: impl Fn(DefinitionField) -> bool,
) -> Option<RerunReason> {
    DefinitionField::ALL.into_iter().filter(|&field| !accepted(field)).find_map(|field| {
        let (old, new) = compare_field(field, old, new)?;
        Some(RerunReason::Changed { field, old, new })
    })
}

/// Describes how a field differs; `None` if it does not.
fn compare_field(
    field: DefinitionField,
    old: &ReuseDefinition<'_>,
    new: &ReuseDefinition<'_>,
) -> Option<(String, String)> {
    match field {
        DefinitionField::Command => compare_texts(Some(&old.command), Some(&new.command)),
        DefinitionField::InvocationScript => {
            compare_texts(old.invocation_script.as_deref(), new.invocation_script.as_deref())
        }
        DefinitionField::Env => {
            let pairs = |definition: &ReuseDefinition<'_>| {
                definition.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
            };
            compare_pairs(pairs(old), pairs(new))
        }
        DefinitionField::UserData => {
            let pairs = |definition: &ReuseDefinition<'_>| {
                let texts = definition.user_data.iter();
                texts.map(|(name, text)| (name.clone().into_owned(), text.clone().into_owned())).collect()
            };
            compare_pairs(pairs(old), pairs(new))
        }
        DefinitionField::OutputUserData => compare_sets(&old.output_user_data, &new.output_user_data),
        DefinitionField::InputFiles => compare_sets(&old.inputs, &new.inputs),
        DefinitionField::OutputFiles => compare_sets(&old.outputs, &new.outputs),
        DefinitionField::DependsOn => compare_digests(old.depends_on?, new.depends_on?),
    }
}

fn compare_texts(old: Option<&str>, new: Option<&str>) -> Option<(String, String)> {
    let show = |text: Option<&str>| text.unwrap_or("(none)").to_owned();
    (old != new).then(|| (show(old), show(new)))
}

/// Returns the first name, in alphabetical order, whose value differs.
fn compare_pairs(mut old: Vec<(String, String)>, mut new: Vec<(String, String)>) -> Option<(String, String)> {
    old.sort();
    new.sort();
    if old == new {
        return None;
    }
    let mut names: Vec<&String> = old.iter().chain(&new).map(|(name, _)| name).collect();
    names.sort();
    let value = |pairs: &[(String, String)], name: &str| {
        pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    };
    let name = names.into_iter().find(|name| value(&old, name) != value(&new, name))?;
    let show = |value: Option<String>| match value {
        Some(value) => format!("{name}={value}"),
        None => format!("(no {name})"),
    };
    Some((show(value(&old, name)), show(value(&new, name))))
}

fn compare_sets(old: &[Cow<'_, str>], new: &[Cow<'_, str>]) -> Option<(String, String)> {
    let only = |these: &[Cow<'_, str>], others: &[Cow<'_, str>]| {
        let only: Vec<&str> = these.iter().filter(|one| !others.contains(one)).map(AsRef::as_ref).collect();
        if only.is_empty() { "(none)".to_owned() } else { only.join(", ") }
    };
    let same = old == new
        || (old.len() == new.len()
            && old.iter().all(|one| new.contains(one))
            && new.iter().all(|one| old.contains(one)));
    (!same).then(|| (only(old, new), only(new, old)))
}

/// Names are not stored, so only their numbers are shown.
fn compare_digests(old: NameSetDigest, new: NameSetDigest) -> Option<(String, String)> {
    let show = |digest: NameSetDigest, which: &str| match digest.count {
        0 => "(none)".to_owned(),
        1 => format!("1 {which}job"),
        n => format!("{n} {which}jobs"),
    };
    let which = if old.count == new.count { "other " } else { "" };
    (old != new).then(|| (show(old, ""), show(new, which)))
}
