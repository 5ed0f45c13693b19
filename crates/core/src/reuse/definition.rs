//! What makes a job the job it is, and the first thing in which two definitions differ.

use super::Reason;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash as _, Hasher as _};

/// Everything that decides what a job does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definition<'a> {
    pub name: Cow<'a, str>,
    pub command: Cow<'a, str>,
    pub invocation_script: Option<Cow<'a, str>>,
    /// All that is set for it, by whatever level of the spec. The order means nothing.
    pub env: Cow<'a, [(String, String)]>,
    /// Name and text (or digest) of each user data that it reads.
    pub user_data: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Names of the user data that it writes.
    pub output_user_data: Vec<Cow<'a, str>>,
    pub inputs: Vec<Cow<'a, str>>,
    pub outputs: Vec<Cow<'a, str>>,
    /// The jobs that it waits for, if they are to count.
    pub depends_on: Option<NamesDigest>,
}

/// A set of names, small enough to keep for each of a million jobs. Digests of disjoint sets can be added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamesDigest {
    pub count: u32,
    sum: u64,
}

impl NamesDigest {
    pub fn of<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        names.into_iter().fold(Self::default(), |digest, name| {
            let mut hasher = rustc_hash::FxHasher::default();
            name.hash(&mut hasher);
            digest + Self { count: 1, sum: hasher.finish() }
        })
    }
}

impl std::ops::Add for NamesDigest {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { count: self.count + other.count, sum: self.sum.wrapping_add(other.sum) }
    }
}

/// A part of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Field {
    UserData,
    OutputUserData,
    Command,
    InvocationScript,
    Env,
    InputFiles,
    OutputFiles,
    DependsOn,
}

impl Field {
    /// In the order in which they are compared. User data first: commands hold their ids, which say less than a name.
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

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// "This change means nothing": a field of a job, or of all jobs. Written `JOB:FIELD`, `JOB` (any field) or `*:FIELD`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accept {
    /// `None`: every job.
    pub job: Option<String>,
    /// `None`: every field.
    pub field: Option<Field>,
}

impl Accept {
    pub fn covers(&self, job: &str, field: Field) -> bool {
        self.job.as_deref().is_none_or(|accepted| accepted == job)
            && self.field.is_none_or(|accepted| accepted == field)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseAcceptError {
    #[error("`{0}` names no job; write JOB, JOB:FIELD or *:FIELD")]
    NoJob(String),
    #[error(
        "unknown field `{0}`; known: {known}", known = Field::ALL.map(Field::name).join(", ")
    )]
    UnknownField(String),
}

impl std::str::FromStr for Accept {
    type Err = ParseAcceptError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (job, field) = match text.rsplit_once(':') {
            Some((job, field)) => (job, Some(field)),
            None => (text, None),
        };
        if job.is_empty() {
            return Err(ParseAcceptError::NoJob(text.to_owned()));
        }
        let known = |name: &str| Field::ALL.into_iter().find(|field| field.name() == name);
        let field = match field {
            None => None,
            Some(name) => Some(known(name).ok_or_else(|| ParseAcceptError::UnknownField(name.to_owned()))?),
        };
        Ok(Self { job: (job != "*").then(|| job.to_owned()), field })
    }
}

/// The first field that is not as it was and not accepted.
pub(super) fn difference(
    old: &Definition<'_>,
    new: &Definition<'_>,
    accepted: impl Fn(Field) -> bool,
) -> Option<Reason> {
    Field::ALL.into_iter().filter(|&field| !accepted(field)).find_map(|field| {
        let (old, new) = differing(field, old, new)?;
        Some(Reason::Changed { field, old, new })
    })
}

/// How one field differs, as text to show, or `None` if it does not.
fn differing(field: Field, old: &Definition<'_>, new: &Definition<'_>) -> Option<(String, String)> {
    match field {
        Field::Command => differing_texts(Some(&old.command), Some(&new.command)),
        Field::InvocationScript => {
            differing_texts(old.invocation_script.as_deref(), new.invocation_script.as_deref())
        }
        Field::Env => {
            let pairs = |definition: &Definition<'_>| {
                definition.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
            };
            differing_pairs(pairs(old), pairs(new))
        }
        Field::UserData => {
            let pairs = |definition: &Definition<'_>| {
                let texts = definition.user_data.iter();
                texts.map(|(name, text)| (name.clone().into_owned(), text.clone().into_owned())).collect()
            };
            differing_pairs(pairs(old), pairs(new))
        }
        Field::OutputUserData => differing_sets(&old.output_user_data, &new.output_user_data),
        Field::InputFiles => differing_sets(&old.inputs, &new.inputs),
        Field::OutputFiles => differing_sets(&old.outputs, &new.outputs),
        Field::DependsOn => differing_digests(old.depends_on?, new.depends_on?),
    }
}

fn differing_texts(old: Option<&str>, new: Option<&str>) -> Option<(String, String)> {
    let show = |text: Option<&str>| text.unwrap_or("(none)").to_owned();
    (old != new).then(|| (show(old), show(new)))
}

/// The first name, in the order of the alphabet, whose value differs.
fn differing_pairs(
    mut old: Vec<(String, String)>,
    mut new: Vec<(String, String)>,
) -> Option<(String, String)> {
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

fn differing_sets(old: &[Cow<'_, str>], new: &[Cow<'_, str>]) -> Option<(String, String)> {
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

/// Names are not kept, so the numbers have to do.
fn differing_digests(old: NamesDigest, new: NamesDigest) -> Option<(String, String)> {
    let show = |digest: NamesDigest, which: &str| match digest.count {
        0 => "(none)".to_owned(),
        1 => format!("1 {which}job"),
        n => format!("{n} {which}jobs"),
    };
    let which = if old.count == new.count { "other " } else { "" };
    (old != new).then(|| (show(old, ""), show(new, which)))
}
