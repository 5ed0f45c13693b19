//! Summary of the failed attempts of a run: bounded in size however many there are, with attribution to sites.
//!
//! Both backends report failed attempts in the same form ([`FailedAttemptReport`]); a [`FailureTally`] collects
//! them. It is stored with the run and bounded: what exceeds the bounds is counted, but not listed.
//!
//! | file | content |
//! |---|---|
//! | `mod.rs` | the tally: adding, merging, queries by unit and file |
//! | `role_counts.rs` | counts of attempts by node role |
//! | `recent_window.rs` | recent failures, for monitoring a run |
//! | `report.rs` | the error report, with a suggestion for each kind of failure |

mod recent_window;
mod report;
mod role_counts;
#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;

pub use recent_window::{RecentFailures, TallySnapshot};
pub use report::{
    CategoryErrors, CodeErrors, ErrorReport, FailureRemedy, FileErrors, SimilarErrors, SiteErrors,
    build_error_report,
};
pub use role_counts::RoleCounts;

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use windlass_types::requests::NodeRole;
use windlass_types::{FailureClass, Timestamp};

/// Name of the unknown site. It is never blamed.
pub const UNKNOWN_SITE: &str = "unknown";

/// Maximum number of failure kinds.
const MAX_KINDS: usize = 50;
/// Maximum number of files listed.
const MAX_FILES: usize = 4000;
/// Maximum number of finally failed units listed.
const MAX_UNITS: usize = 4000;
/// Maximum number of sites counted individually.
const MAX_SITES: usize = 1000;
/// Maximum number of units and sites listed for each kind or file.
const MAX_EXAMPLES: usize = 10;
/// Maximum number of bytes kept of the end of an attempt's output.
pub const MAX_LOG_TAIL: usize = 4096;
const MAX_MESSAGE: usize = 500;

/// A failed attempt, as reported by a backend.
#[derive(Clone, Debug, PartialEq)]
pub struct FailedAttemptReport {
    /// Higher than all earlier ones.
    pub seq: i64,
    pub unit: u32,
    pub node: String,
    pub role: NodeRole,
    pub attempt: u32,
    pub site: Option<String>,
    pub class: FailureClass,
    /// The CMS code if there is one, else that of the process.
    pub code: i32,
    /// Equal for all failures of the same kind.
    pub signature: String,
    pub message: String,
    /// No other attempt follows in this run.
    pub is_final: bool,
    /// Unreadable inputs; for a landing also inputs that it did not find at its site.
    pub bad_files: Vec<String>,
    /// The end of its output, redacted.
    pub log_tail: String,
    /// Peak memory.
    pub memory_mb: Option<u64>,
    pub at: Timestamp,
}

/// The failed attempts of one or several runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FailureTally {
    /// Sequence number of the last report that was read.
    pub read: i64,
    /// Failed attempts.
    pub failed: u64,
    /// In the order of first occurrence.
    pub kinds: Vec<SimilarFailures>,
    /// Failed attempts of kinds beyond the maximum.
    pub of_other_kinds: u64,
    pub sites: BTreeMap<String, SiteAttemptCounts>,
    /// Unreadable files, and where.
    pub files: BTreeMap<String, BadFile>,
    /// Number of files beyond the maximum.
    pub more_files: u64,
    /// Files that landings did not find at any site until no attempts were left. A site that was not tried may
    /// still have them, so only an operator excludes them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub missing: BTreeMap<String, BadFile>,
    /// Finally failed units; `true` if all their failures were unreadable, known inputs.
    pub units: BTreeMap<u32, bool>,
    /// Whether there are more such units.
    pub has_more_units: bool,
    /// Attempts ended at each site before the run began: backends count over all runs of a round.
    pub before: BTreeMap<String, RoleCounts>,
    /// Snapshots at several times, the oldest first.
    pub marks: Vec<TallySnapshot>,
    /// Findings that were reported to operators.
    pub told: BTreeSet<String>,
    /// Whether its pause has ended and the backend must still be notified.
    pub is_lifting: bool,
}

/// Failures of one kind: same class and code, and the same message except for numbers and paths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimilarFailures {
    pub class: FailureClass,
    pub code: i32,
    pub signature: String,
    /// Message of the first one.
    pub message: String,
    pub attempts: u64,
    /// Those that were final.
    pub for_good: u64,
    pub sites: BTreeMap<String, u64>,
    #[serde(default)]
    pub roles: RoleCounts,
    /// The first ones.
    pub units: BTreeSet<u32>,
    /// An example: `mg_000003/proc_000001`.
    pub example: String,
    #[serde(default)]
    pub log_tail: String,
    /// Peak memory over all of them.
    #[serde(default)]
    pub memory_mb: Option<u64>,
    /// Unreadable inputs, up to the maximum.
    #[serde(default)]
    pub files: BTreeSet<String>,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
}

/// Attempts at a site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SiteAttemptCounts {
    /// Completed or failed.
    pub ended: RoleCounts,
    pub failed: RoleCounts,
    /// Failures attributable to the site: infrastructure, and data without a named file.
    pub blamed: RoleCounts,
}

impl SiteAttemptCounts {
    /// Returns the failures attributable to the site, and the ended attempts of the same roles for comparison.
    pub fn blamed_and_ended(self) -> (u64, u64) {
        (self.blamed.total(), self.ended.comparable_with(self.blamed))
    }
}

/// An unreadable input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BadFile {
    /// Units that failed finally because of it.
    pub units: BTreeSet<u32>,
    /// Attempts that failed because of it, by site.
    pub sites: BTreeMap<String, RoleCounts>,
}

impl BadFile {
    fn merge_from(&mut self, other: &Self) {
        self.units.extend(&other.units);
        for (site, attempts) in &other.sites {
            let known = self.sites.entry(site.clone()).or_default();
            *known = known.plus(*attempts);
        }
    }
}

/// A landing that did not find inputs leaves them to other sites. If it is not retried, no tried site had them.
fn is_final_missing_input(attempt: &FailedAttemptReport) -> bool {
    attempt.is_final
        && attempt.role == NodeRole::Landing
        && attempt.class == FailureClass::Infrastructure
        && !attempt.bad_files.is_empty()
}

impl FailureTally {
    /// Returns the initial tally of the run that continues this one: findings are not reported again.
    #[must_use]
    pub fn for_continuation(&self) -> Self {
        let mut before = self.before.clone();
        for (site, tally) in &self.sites {
            let before = before.entry(site.clone()).or_default();
            *before = before.plus(tally.ended);
        }
        Self { read: self.read, before, ..Self::default() }
    }

    /// Adds reports of a backend: attempts after `read`, and the number of ended attempts at each site. Returns
    /// whether there were new failures.
    pub fn add_reports(
        &mut self,
        attempts: &[FailedAttemptReport],
        ended: &BTreeMap<String, RoleCounts>,
    ) -> bool {
        let read = self.read;
        for attempt in attempts.iter().filter(|attempt| attempt.seq > read) {
            self.read = self.read.max(attempt.seq);
            self.add_attempt(attempt);
        }
        for (site, &ended) in ended {
            let before = self.before.get(site).copied().unwrap_or_default();
            self.site_entry(Some(site)).ended = ended.minus(before);
        }
        // Failed attempts have ended, even if the backend does not count them.
        for site in self.sites.values_mut() {
            site.ended = site.ended.max_by_role(site.failed);
        }
        self.read > read
    }

    fn add_attempt(&mut self, attempt: &FailedAttemptReport) {
        self.failed += 1;
        let is_named = attempt.class == FailureClass::Data && !attempt.bad_files.is_empty();
        let is_blamed = match attempt.class {
            FailureClass::Infrastructure => true,
            FailureClass::Data => !is_named,
            _ => false,
        };
        let site = self.site_entry(attempt.site.as_deref());
        site.failed.add_attempts(attempt.role, 1);
        site.blamed.add_attempts(attempt.role, u64::from(is_blamed));
        if is_named {
            self.add_bad_files(attempt);
        }
        if attempt.is_final {
            self.add_failed_unit(attempt.unit, is_named);
        }
        if is_final_missing_input(attempt) {
            self.add_missing_files(attempt);
            self.add_to_kind(&FailedAttemptReport { class: FailureClass::Data, ..attempt.clone() });
        } else {
            self.add_to_kind(attempt);
        }
    }

    fn add_missing_files(&mut self, attempt: &FailedAttemptReport) {
        for lfn in &attempt.bad_files {
            if self.missing.len() >= MAX_FILES && !self.missing.contains_key(lfn) {
                continue;
            }
            let file = self.missing.entry(lfn.clone()).or_default();
            let site = attempt.site.as_deref().unwrap_or(UNKNOWN_SITE);
            if file.sites.len() < MAX_EXAMPLES || file.sites.contains_key(site) {
                file.sites.entry(site.to_owned()).or_default().add_attempts(attempt.role, 1);
            }
            file.units.insert(attempt.unit);
        }
    }

    /// Returns the entry of the site; sites beyond the maximum count as unknown.
    fn site_entry(&mut self, site: Option<&str>) -> &mut SiteAttemptCounts {
        let site = site.filter(|site| is_known_site(site)).unwrap_or(UNKNOWN_SITE);
        let has_room = self.sites.len() < MAX_SITES || self.sites.contains_key(site);
        self.sites.entry(if has_room { site } else { UNKNOWN_SITE }.to_owned()).or_default()
    }

    /// An attempt counts for the first file that it names; the others are bad as well.
    fn add_bad_files(&mut self, attempt: &FailedAttemptReport) {
        let mut failures = 1;
        for lfn in &attempt.bad_files {
            if self.files.len() >= MAX_FILES && !self.files.contains_key(lfn) {
                self.more_files += 1;
                continue;
            }
            let file = self.files.entry(lfn.clone()).or_default();
            let site = attempt.site.as_deref().unwrap_or(UNKNOWN_SITE);
            if file.sites.len() < MAX_EXAMPLES || file.sites.contains_key(site) {
                file.sites.entry(site.to_owned()).or_default().add_attempts(attempt.role, failures);
            }
            failures = 0;
            if attempt.is_final {
                file.units.insert(attempt.unit);
            }
        }
    }

    fn add_failed_unit(&mut self, unit: u32, is_named: bool) {
        if self.units.len() >= MAX_UNITS && !self.units.contains_key(&unit) {
            self.has_more_units = true;
            return;
        }
        let only_files = self.units.entry(unit).or_insert(true);
        *only_files &= is_named;
    }

    fn add_to_kind(&mut self, attempt: &FailedAttemptReport) {
        let has_room = self.kinds.len() < MAX_KINDS;
        match self.kinds.iter_mut().find(|kind| kind.matches_attempt(attempt)) {
            Some(kind) => kind.add_attempt(attempt),
            None if has_room => self.kinds.push(SimilarFailures::from_attempt(attempt)),
            None => self.of_other_kinds += 1,
        }
    }

    /// Whether all these failed units failed finally because of unreadable, named inputs: no other attempt
    /// helps, and nothing else is wrong.
    pub fn has_only_bad_files(&self, failed_units: u32) -> bool {
        failed_units > 0
            && !self.has_more_units
            && self.more_files == 0
            && self.units.len() == failed_units as usize
            && self.units.values().all(|only_files| *only_files)
    }

    /// Returns unreadable files by the units that failed finally because of them.
    pub fn bad_files_by_unit(&self) -> BTreeMap<u32, BTreeSet<&str>> {
        let mut files: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
        for (lfn, file) in &self.files {
            for unit in &file.units {
                files.entry(*unit).or_default().insert(lfn);
            }
        }
        files
    }

    /// Returns failures attributable to a site. A file that is unreadable at another site too is bad itself.
    pub fn blamed_failures(&self, site: &str) -> u64 {
        let of_files = self.files.values().filter(|file| file.sites.len() == 1);
        let of_files: RoleCounts = of_files.filter_map(|file| file.sites.get(site)).copied().sum();
        self.sites.get(site).map_or(of_files, |tally| tally.blamed.plus(of_files)).total()
    }

    /// Returns all sites with the failures attributable to them.
    pub(super) fn blamed_by_site(&self) -> BTreeMap<String, SiteAttemptCounts> {
        let mut sites = self.sites.clone();
        for file in self.files.values() {
            if let (1, Some((site, failed))) = (file.sites.len(), file.sites.iter().next())
                && let Some(tally) = sites.get_mut(site)
            {
                tally.blamed = tally.blamed.plus(*failed);
            }
        }
        sites
    }

    /// Returns the number of ended attempts, completed or failed.
    pub fn ended_attempts(&self) -> u64 {
        self.sites.values().map(|site| site.ended.total()).sum()
    }

    /// Merges several runs: the report on a round and its rescues.
    #[must_use]
    pub fn merge_all<'a>(tallies: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut all = Self::default();
        for tally in tallies {
            all.merge_from(tally);
        }
        all
    }

    fn merge_from(&mut self, other: &Self) {
        self.read = self.read.max(other.read);
        self.failed += other.failed;
        self.of_other_kinds += other.of_other_kinds;
        self.more_files += other.more_files;
        self.has_more_units |= other.has_more_units;
        for kind in &other.kinds {
            let has_room = self.kinds.len() < MAX_KINDS;
            match self.kinds.iter_mut().find(|known| known.is_same_kind(kind)) {
                Some(known) => known.merge_from(kind),
                None if has_room => self.kinds.push(kind.clone()),
                None => self.of_other_kinds += kind.attempts,
            }
        }
        for (name, site) in &other.sites {
            let known = self.site_entry(Some(name));
            known.ended = known.ended.plus(site.ended);
            known.failed = known.failed.plus(site.failed);
            known.blamed = known.blamed.plus(site.blamed);
        }
        for (lfn, file) in &other.files {
            if self.files.len() >= MAX_FILES && !self.files.contains_key(lfn) {
                self.more_files += 1;
                continue;
            }
            self.files.entry(lfn.clone()).or_default().merge_from(file);
        }
        for (lfn, file) in &other.missing {
            if self.missing.len() < MAX_FILES || self.missing.contains_key(lfn) {
                self.missing.entry(lfn.clone()).or_default().merge_from(file);
            }
        }
        for (unit, only_files) in &other.units {
            self.add_failed_unit(*unit, *only_files);
        }
    }
}

/// Whether it is the name of a site, and not the unknown site.
pub fn is_known_site(site: &str) -> bool {
    !site.is_empty() && !site.eq_ignore_ascii_case(UNKNOWN_SITE)
}

impl SimilarFailures {
    fn from_attempt(attempt: &FailedAttemptReport) -> Self {
        let mut kind = Self {
            class: attempt.class,
            code: attempt.code,
            signature: attempt.signature.clone(),
            message: text_head(&attempt.message, MAX_MESSAGE).to_owned(),
            attempts: 0,
            for_good: 0,
            sites: BTreeMap::new(),
            roles: RoleCounts::default(),
            units: BTreeSet::new(),
            example: format!("{}/{}", windlass_types::requests::WorkUnitName(attempt.unit), attempt.node),
            log_tail: String::new(),
            memory_mb: None,
            files: BTreeSet::new(),
            first_at: attempt.at,
            last_at: attempt.at,
        };
        kind.add_attempt(attempt);
        kind
    }

    fn matches_attempt(&self, attempt: &FailedAttemptReport) -> bool {
        (self.class, self.code) == (attempt.class, attempt.code) && self.signature == attempt.signature
    }

    fn is_same_kind(&self, other: &Self) -> bool {
        (self.class, self.code) == (other.class, other.code) && self.signature == other.signature
    }

    /// Returns a key that is unique within the tally.
    pub fn key(&self) -> String {
        format!("{}:{}:{}", self.class, self.code, self.signature)
    }

    fn add_attempt(&mut self, attempt: &FailedAttemptReport) {
        self.attempts += 1;
        self.for_good += u64::from(attempt.is_final);
        let site = attempt.site.as_deref().filter(|site| is_known_site(site)).unwrap_or(UNKNOWN_SITE);
        self.add_site(site, 1);
        self.roles.add_attempts(attempt.role, 1);
        self.add_units([attempt.unit]);
        self.add_files(&attempt.bad_files);
        if self.log_tail.is_empty() {
            text_tail(&attempt.log_tail, MAX_LOG_TAIL).clone_into(&mut self.log_tail);
        }
        self.memory_mb = self.memory_mb.max(attempt.memory_mb);
        self.first_at = self.first_at.min(attempt.at);
        self.last_at = self.last_at.max(attempt.at);
    }

    fn merge_from(&mut self, other: &Self) {
        self.attempts += other.attempts;
        self.for_good += other.for_good;
        for (site, attempts) in &other.sites {
            self.add_site(site, *attempts);
        }
        self.roles = self.roles.plus(other.roles);
        self.add_units(other.units.iter().copied());
        self.add_files(&other.files);
        if self.log_tail.is_empty() {
            self.log_tail.clone_from(&other.log_tail);
        }
        self.memory_mb = self.memory_mb.max(other.memory_mb);
        self.first_at = self.first_at.min(other.first_at);
        self.last_at = self.last_at.max(other.last_at);
    }

    fn add_site(&mut self, site: &str, attempts: u64) {
        let has_room = self.sites.len() < 5 * MAX_EXAMPLES || self.sites.contains_key(site);
        let site = if has_room { site } else { UNKNOWN_SITE };
        *self.sites.entry(site.to_owned()).or_default() += attempts;
    }

    fn add_units(&mut self, units: impl IntoIterator<Item = u32>) {
        let room = MAX_EXAMPLES.saturating_sub(self.units.len());
        self.units.extend(units.into_iter().take(room));
    }

    fn add_files<'f>(&mut self, files: impl IntoIterator<Item = &'f String>) {
        for file in files {
            if self.files.len() < MAX_EXAMPLES {
                self.files.insert(file.clone());
            }
        }
    }
}

fn text_head(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

fn text_tail(text: &str, most: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(most))..]
}
