//! Failed attempts of a run, summed up: what is kept of them however many there are, and who is to blame.
//!
//! Both backends tell of failed attempts in the same words ([`AttemptNews`]); a [`Tally`] takes them in. It is kept with
//! the run and never grows beyond some bounds: what is beyond them is counted, and not named.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | the tally: taking in, merging, what it knows of units and files |
//! | `roles.rs` | counts of attempts by what their nodes are for |
//! | `window.rs` | what happened of late, for those who watch a run |
//! | `report.rs` | what people are told, with a suggestion for each kind of failure |

mod recent_window;
mod report;
mod role_counts;
#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;

pub use recent_window::{RecentFailures, TallySnapshot};
pub use report::{
    CategoryErrors, CodeErrors, ErrorReport, FailureRemedy, FileErrors, KindErrors, SiteErrors,
    build_error_report,
};
pub use role_counts::RoleCounts;

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use windlass_types::requests::NodeRole;
use windlass_types::{FailureClass, Timestamp};

/// What a site is called that nobody knows. It is never blamed.
pub const UNKNOWN_SITE: &str = "unknown";

/// So many kinds of failures are told apart.
const MAX_KINDS: usize = 50;
/// So many files are named.
const MAX_FILES: usize = 4000;
/// So many units that failed for good are known by their numbers.
const MAX_UNITS: usize = 4000;
/// So many sites are counted one by one.
const MAX_SITES: usize = 1000;
/// So many units, and sites, are named for each kind or file.
const MAX_EXAMPLES: usize = 10;
/// So many bytes are kept of what an attempt said last.
pub const MAX_LOG_TAIL: usize = 4096;
const MAX_MESSAGE: usize = 500;

/// A failed attempt, as a backend tells of it.
#[derive(Clone, Debug, PartialEq)]
pub struct FailedAttemptReport {
    /// Higher than that of all that were told before it.
    pub seq: i64,
    pub unit: u32,
    pub node: String,
    pub role: NodeRole,
    pub attempt: u32,
    pub site: Option<String>,
    pub class: FailureClass,
    /// Of CMS where there is one, else of the process.
    pub code: i32,
    /// The same for all that failed alike.
    pub signature: String,
    pub message: String,
    /// No other attempt follows in this run.
    pub is_final: bool,
    /// Inputs that it could not read; of a landing also those that it did not find where it was.
    pub bad_files: Vec<String>,
    /// What it said last, without secrets.
    pub log_tail: String,
    /// The most that it used.
    pub memory_mb: Option<u64>,
    pub at: Timestamp,
}

/// The failed attempts of a run, or of several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FailureTally {
    /// How far the news of failed attempts have been read.
    pub read: i64,
    /// Failed attempts.
    pub failed: u64,
    /// In the order in which they were first seen.
    pub kinds: Vec<FailureKind>,
    /// Failed attempts of kinds that found no place among those.
    pub of_other_kinds: u64,
    pub sites: BTreeMap<String, SiteAttemptCounts>,
    /// Files that could not be read, and where.
    pub files: BTreeMap<String, BadFile>,
    /// How many more were named.
    pub more_files: u64,
    /// Files that landings did not find wherever they looked, until there were no attempts left. A site that was not tried
    /// may have them still, so only a person leaves them out.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub missing: BTreeMap<String, BadFile>,
    /// Units in which something failed for good; whether all of that was input that could not be read, and was named.
    pub units: BTreeMap<u32, bool>,
    /// There are more units like that.
    pub has_more_units: bool,
    /// What had ended at each site when the run began: backends count over all runs of a round.
    pub before: BTreeMap<String, RoleCounts>,
    /// How it stood at some times, the oldest first.
    pub marks: Vec<TallySnapshot>,
    /// Findings that people were told of.
    pub told: BTreeSet<String>,
    /// Its pause is over, and the backend has still to be told.
    pub is_lifting: bool,
}

/// Failures alike: of one class, with one code, that said the same but for numbers and paths.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailureKind {
    pub class: FailureClass,
    pub code: i32,
    pub signature: String,
    /// That of the first one.
    pub message: String,
    pub attempts: u64,
    /// Those of them that no other attempt followed.
    pub for_good: u64,
    pub sites: BTreeMap<String, u64>,
    #[serde(default)]
    pub roles: RoleCounts,
    /// The first of them.
    pub units: BTreeSet<u32>,
    /// Where one is to be looked at: `mg_000003/proc_000001`.
    pub example: String,
    #[serde(default)]
    pub log_tail: String,
    /// The most that one of them used.
    #[serde(default)]
    pub memory_mb: Option<u64>,
    /// The inputs that they could not read, as many as fit.
    #[serde(default)]
    pub files: BTreeSet<String>,
    pub first_at: Timestamp,
    pub last_at: Timestamp,
}

/// Attempts at a site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SiteAttemptCounts {
    /// Well or not.
    pub ended: RoleCounts,
    pub failed: RoleCounts,
    /// Those of them that the site may be the cause of: infrastructure, and data without a name.
    pub blamed: RoleCounts,
}

impl SiteAttemptCounts {
    /// What it may be the cause of, and what ended there that this is to be compared with: attempts of the same roles.
    pub fn blamed_and_ended(self) -> (u64, u64) {
        (self.blamed.total(), self.ended.comparable_with(self.blamed))
    }
}

/// An input that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BadFile {
    /// Units that it failed in for good.
    pub units: BTreeSet<u32>,
    /// Attempts that failed because of it, by where they were.
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

/// A landing that did not find inputs leaves them to other sites. Once it is not tried again, no site that was tried had
/// them.
fn is_final_missing_input(attempt: &FailedAttemptReport) -> bool {
    attempt.is_final
        && attempt.role == NodeRole::Landing
        && attempt.class == FailureClass::Infrastructure
        && !attempt.bad_files.is_empty()
}

impl FailureTally {
    /// For the run that goes on with the one that this is of: what was told is told.
    #[must_use]
    pub fn for_continuation(&self) -> Self {
        let mut before = self.before.clone();
        for (site, tally) in &self.sites {
            let before = before.entry(site.clone()).or_default();
            *before = before.plus(tally.ended);
        }
        Self { read: self.read, before, ..Self::default() }
    }

    /// Takes in what a backend tells: attempts after `read`, and how many have ended at each site. Whether anything was
    /// new about failures.
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
        // Whatever failed has ended, also where nobody counts.
        for site in self.sites.values_mut() {
            site.ended = site.ended.at_least(site.failed);
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

    /// The one where it was; those that find no place are counted as unknown.
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
            None if has_room => self.kinds.push(FailureKind::from_attempt(attempt)),
            None => self.of_other_kinds += 1,
        }
    }

    /// Whether all of these many units that failed did so for good because of input that could not be read and was named:
    /// no other attempt can help, and nothing else is wrong.
    pub fn has_only_bad_files(&self, failed_units: u32) -> bool {
        failed_units > 0
            && !self.has_more_units
            && self.more_files == 0
            && self.units.len() == failed_units as usize
            && self.units.values().all(|only_files| *only_files)
    }

    /// Files that could not be read, by the units that failed for good because of them.
    pub fn bad_files_by_unit(&self) -> BTreeMap<u32, BTreeSet<&str>> {
        let mut files: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
        for (lfn, file) in &self.files {
            for unit in &file.units {
                files.entry(*unit).or_default().insert(lfn);
            }
        }
        files
    }

    /// Failures that a site may be the cause of. A file that could not be read at another site either is bad itself.
    pub fn blamed_failures(&self, site: &str) -> u64 {
        let of_files = self.files.values().filter(|file| file.sites.len() == 1);
        let of_files: RoleCounts = of_files.filter_map(|file| file.sites.get(site)).copied().sum();
        self.sites.get(site).map_or(of_files, |tally| tally.blamed.plus(of_files)).total()
    }

    /// All sites, each blamed for all that it may be the cause of.
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

    /// Attempts that have ended, well or not.
    pub fn ended_attempts(&self) -> u64 {
        self.sites.values().map(|site| site.ended.total()).sum()
    }

    /// Of several runs together: what people are told of a round and its rescues.
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

/// Whether it is the name of a site, and no word for not knowing one.
pub fn is_known_site(site: &str) -> bool {
    !site.is_empty() && !site.eq_ignore_ascii_case(UNKNOWN_SITE)
}

impl FailureKind {
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

    /// What tells it from all others, in a word.
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
