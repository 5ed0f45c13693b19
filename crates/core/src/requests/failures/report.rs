//! The error report of a request, with suggestions for each kind of failure.

use super::{FailureTally, SimilarFailures, SiteAttemptCounts, is_known_site};
use crate::classify::cms_exit_codes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use windlass_types::{FailureClass, Timestamp};

/// The failures of a round and its rescues. The most frequent come first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ErrorReport {
    /// Attempts that ended, completed or failed.
    pub attempts_ended: u64,
    pub attempts_failed: u64,
    pub by_category: Vec<CategoryErrors>,
    pub by_site: Vec<SiteErrors>,
    pub by_exit_code: Vec<CodeErrors>,
    pub bad_files: Vec<FileErrors>,
    /// Number of bad files that are not listed.
    pub more_bad_files: u64,
    pub kinds: Vec<SimilarErrors>,
    /// Failed attempts of kinds that are not listed.
    pub of_other_kinds: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CategoryErrors {
    pub category: FailureClass,
    pub attempts: u64,
    /// Those that were final.
    pub for_good: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteErrors {
    pub site: String,
    pub ended: u64,
    pub failed: u64,
    /// Failures attributable to the site.
    pub blamed: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeErrors {
    pub exit_code: i32,
    pub attempts: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileErrors {
    pub lfn: String,
    /// Attempts that failed because of it.
    pub attempts: u64,
    pub sites: Vec<String>,
    /// Work units that failed finally because of it.
    pub units: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimilarErrors {
    pub category: FailureClass,
    pub exit_code: i32,
    pub signature: String,
    pub message: String,
    pub attempts: u64,
    pub for_good: u64,
    pub sites: BTreeMap<String, u64>,
    /// The first ones.
    pub units: Vec<u32>,
    pub example: String,
    pub log_tail: String,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
    /// A suggestion for the operator.
    pub suggestion: String,
    /// The suggestion as a change that a release can make, if possible.
    #[serde(default)]
    pub remedy: Option<FailureRemedy>,
}

/// A change with which a released request continues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureRemedy {
    /// Bans the site.
    Ban(String),
    /// Memory for each job.
    MemoryMb(u64),
    /// More time for each event.
    MoreTime,
    /// Excludes unreadable input files.
    Exclude,
}

/// Builds the report for people.
pub fn build_error_report(tally: &FailureTally) -> ErrorReport {
    let mut kinds: Vec<SimilarErrors> = tally.kinds.iter().map(|kind| kind_errors(tally, kind)).collect();
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.attempts));
    let mut files = tally.files.clone();
    for (lfn, missing) in &tally.missing {
        files.entry(lfn.clone()).or_default().merge_from(missing);
    }
    let mut bad_files: Vec<FileErrors> = files.iter().map(file_errors).collect();
    bad_files.sort_by_key(|file| std::cmp::Reverse(file.attempts));
    let mut by_site: Vec<SiteErrors> =
        tally.sites.iter().map(|(name, site)| site_errors(tally, name, site)).collect();
    by_site.sort_by_key(|site| std::cmp::Reverse(site.failed));
    ErrorReport {
        attempts_ended: tally.ended_attempts(),
        attempts_failed: tally.failed,
        by_category: category_errors(tally),
        by_site,
        by_exit_code: code_errors(tally),
        bad_files,
        more_bad_files: tally.more_files,
        kinds,
        of_other_kinds: tally.of_other_kinds,
    }
}

fn kind_errors(tally: &FailureTally, kind: &SimilarFailures) -> SimilarErrors {
    let remedy = find_remedy(tally, kind);
    SimilarErrors {
        category: kind.class,
        exit_code: kind.code,
        signature: kind.signature.clone(),
        message: kind.message.clone(),
        attempts: kind.attempts,
        for_good: kind.for_good,
        sites: kind.sites.clone(),
        units: kind.units.iter().copied().collect(),
        example: kind.example.clone(),
        log_tail: kind.log_tail.clone(),
        first_at: kind.first_at,
        last_at: kind.last_at,
        suggestion: describe_suggestion(tally, kind, remedy.as_ref()),
        remedy,
    }
}

fn file_errors((lfn, file): (&String, &super::BadFile)) -> FileErrors {
    FileErrors {
        lfn: lfn.clone(),
        attempts: file.sites.values().map(|attempts| attempts.total()).sum(),
        sites: file.sites.keys().cloned().collect(),
        units: file.units.iter().copied().collect(),
    }
}

fn site_errors(tally: &FailureTally, name: &str, site: &SiteAttemptCounts) -> SiteErrors {
    let (ended, failed) = (site.ended.total(), site.failed.total());
    SiteErrors { site: name.to_owned(), ended, failed, blamed: tally.blamed_failures(name) }
}

fn category_errors(tally: &FailureTally) -> Vec<CategoryErrors> {
    let mut counts: BTreeMap<FailureClass, (u64, u64)> = BTreeMap::new();
    for kind in &tally.kinds {
        let (attempts, for_good) = counts.entry(kind.class).or_default();
        *attempts += kind.attempts;
        *for_good += kind.for_good;
    }
    let one = |(category, (attempts, for_good))| CategoryErrors { category, attempts, for_good };
    let mut all: Vec<CategoryErrors> = counts.into_iter().map(one).collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.attempts));
    all
}

fn code_errors(tally: &FailureTally) -> Vec<CodeErrors> {
    let mut counts: BTreeMap<i32, u64> = BTreeMap::new();
    for kind in &tally.kinds {
        *counts.entry(kind.code).or_default() += kind.attempts;
    }
    let one = |(exit_code, attempts)| CodeErrors { exit_code, attempts };
    let mut all: Vec<CodeErrors> = counts.into_iter().map(one).collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.attempts));
    all
}

/// Returns a fifth more than was used, rounded up to a common step.
fn suggest_memory(used_mb: u64) -> u64 {
    const STEP: u64 = 100;
    used_mb.saturating_mul(6).div_ceil(5).div_ceil(STEP).saturating_mul(STEP)
}

/// Returns the first remedy that applies.
fn find_remedy(tally: &FailureTally, kind: &SimilarFailures) -> Option<FailureRemedy> {
    match kind.class {
        FailureClass::Memory => kind.memory_mb.map(|used| FailureRemedy::MemoryMb(suggest_memory(used))),
        FailureClass::Timeout => Some(FailureRemedy::MoreTime),
        FailureClass::Data if !kind.files.is_empty() => Some(FailureRemedy::Exclude),
        _ => find_blamed_site(tally, kind).map(|(name, _)| FailureRemedy::Ban(name.to_owned())),
    }
}

/// Describes in words what an operator can do about failures of a kind.
fn describe_suggestion(
    tally: &FailureTally,
    kind: &SimilarFailures,
    remedy: Option<&FailureRemedy>,
) -> String {
    match (remedy, kind.class) {
        (Some(FailureRemedy::MemoryMb(enough)), _) => {
            let used = kind.memory_mb.unwrap_or_default();
            format!("request {enough} MB: {used} MB were not enough")
        }
        (Some(FailureRemedy::Exclude), _) => describe_exclusion(kind),
        (Some(FailureRemedy::MoreTime), _) => {
            "increase the time per event (`--time-per-event`), so that jobs get more time".to_owned()
        }
        (Some(FailureRemedy::Ban(site)), _) => {
            let here = tally.sites.get(site).copied().unwrap_or_default();
            format!("ban {site}: {} of {} attempts failed there", here.failed.total(), here.ended.total())
        }
        (None, FailureClass::Memory) => "request more memory".to_owned(),
        (None, _) => describe_distribution(tally, kind),
    }
}

fn describe_exclusion(kind: &SimilarFailures) -> String {
    const SHOWN: usize = 3;
    let files: Vec<&str> = kind.files.iter().take(SHOWN).map(String::as_str).collect();
    let more = kind.files.len().saturating_sub(SHOWN);
    let and_more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("exclude these files, or have them restored: {}{and_more}", files.join(", "))
}

/// Describes where failures occur if no site is to blame: everywhere, or at some sites.
fn describe_distribution(tally: &FailureTally, kind: &SimilarFailures) -> String {
    let is_everywhere =
        tally.sites.iter().all(|(site, tally)| tally.ended.total() == 0 || kind.sites.contains_key(site));
    let is_most = kind.attempts.saturating_mul(10) > tally.ended_attempts().saturating_mul(9);
    if cms_exit_codes::is_run_wide(kind.code) || (is_everywhere && is_most) {
        return "check the configuration: every attempt fails in the same way at every site".to_owned();
    }
    match kind.class {
        FailureClass::Transient => "retry later: such failures usually pass".to_owned(),
        FailureClass::Infrastructure => {
            "check what the sites have in common: storage, network, software; then retry".to_owned()
        }
        FailureClass::Data => "find the input in the message, and exclude it".to_owned(),
        _ => format!(
            "read the log of {}: another attempt would most likely fail in the same way",
            kind.example
        ),
    }
}

/// Returns the site where nearly all of these failures occurred and most attempts fail, while other sites do
/// better.
fn find_blamed_site<'t>(
    tally: &'t FailureTally,
    kind: &'t SimilarFailures,
) -> Option<(&'t str, &'t SiteAttemptCounts)> {
    const FEW: u64 = 3;
    let (name, here) = kind.sites.iter().max_by_key(|(_, attempts)| **attempts)?;
    let site = tally.sites.get(name).filter(|_| is_known_site(name))?;
    let others = || tally.sites.iter().filter(|(other, _)| *other != name).map(|(_, site)| site);
    let (ended, failed) = others()
        .fold((0, 0), |(ended, failed), site| (ended + site.ended.total(), failed + site.failed.total()));
    let is_most_of_kind = here.saturating_mul(3) >= kind.attempts.saturating_mul(2);
    let (here_failed, here_ended) = (site.failed.total(), site.ended.total());
    let fails_mostly = here_failed >= FEW && here_failed.saturating_mul(2) > here_ended;
    // Without other sites there is no comparison.
    let others_do_better = ended > 0 && failed.saturating_mul(2) < ended;
    (is_most_of_kind && fails_mostly && others_do_better).then_some((name.as_str(), site))
}
