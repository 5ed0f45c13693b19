//! What went wrong in a request, for people: the tallies of its runs, and what might be done about it.

use super::release::window;
use super::request;
use crate::error::Answer;
use std::collections::BTreeSet;
use windlass_api::requests::{
    ErrorsOfCategory, ErrorsOfCode, ErrorsOfFile, ErrorsOfKind, ErrorsOfSite, ReleaseRequest, RequestErrors,
    Suggestion,
};
use windlass_core::adaptive::Window;
use windlass_core::requests::book::{Process, RequestRow};
use windlass_core::requests::failures::{self, ErrorReport, KindErrors, Remedy, Tally};
use windlass_store::Database;
use windlass_store::model::{BanFilter, RunFilter};
use windlass_types::Timestamp;

/// Times what an event was said to take, where jobs ran out of time: nobody has seen how long they would have taken.
const LONGER: f64 = 4.0;

/// Over the present round and its rescues, or over all rounds.
pub fn show(
    db: &dyn Database,
    name: &str,
    all: bool,
    memory: Window,
    now: Timestamp,
) -> Answer<RequestErrors> {
    let row = request(db, name)?;
    let process = db.process(name)?;
    let tallies = match &process {
        Some(process) => tallies(db, process, all)?,
        None => Vec::new(),
    };
    let report = failures::report(&Tally::merged(tallies.iter().map(|(_, tally)| tally)));
    let banned = banned(db, name, now)?;
    let suggestions = suggestions(&row, &report, &banned, memory);
    Ok(RequestErrors {
        request_name: name.to_owned(),
        status: row.status,
        round: process.map(|process| process.round),
        all,
        dags: tallies.into_iter().map(|(run, _)| run).collect(),
        attempts_ended: report.attempts_ended,
        attempts_failed: report.attempts_failed,
        by_category: report.by_category.iter().map(of_category).collect(),
        by_site: report.by_site.into_iter().map(|site| of_site(site, &banned)).collect(),
        by_exit_code: report.by_exit_code.iter().map(of_code).collect(),
        bad_files: report.bad_files.into_iter().map(of_file).collect(),
        more_bad_files: report.more_bad_files,
        kinds: report.kinds.into_iter().map(of_kind).collect(),
        of_other_kinds: report.of_other_kinds,
        suggested_release: together(&suggestions),
        suggestions,
        reason: row.reason,
    })
}

fn tallies(db: &dyn Database, process: &Process, all: bool) -> Answer<Vec<(String, Tally)>> {
    let mut tallies = db.failures_of(&process.uuid)?;
    if !all {
        let filter = RunFilter { process: Some(process.uuid.clone()), ..RunFilter::default() };
        let runs = db.request_runs(&filter)?;
        let of_round: BTreeSet<&str> =
            runs.iter().filter(|run| run.round == process.round).map(|run| run.uuid.as_str()).collect();
        tallies.retain(|(run, _)| of_round.contains(run.as_str()));
    }
    Ok(tallies)
}

fn banned(db: &dyn Database, name: &str, now: Timestamp) -> Answer<BTreeSet<String>> {
    let filter = BanFilter { holds_for: Some(name.to_owned()), active_at: Some(now), ..BanFilter::default() };
    Ok(db.bans(&filter)?.into_iter().map(|ban| ban.ban.site).collect())
}

/// One for each thing that might be done; what most attempts speak for comes first.
fn suggestions(
    row: &RequestRow,
    report: &ErrorReport,
    banned: &BTreeSet<String>,
    memory: Window,
) -> Vec<Suggestion> {
    let mut all: Vec<Suggestion> = Vec::new();
    for kind in &report.kinds {
        let new = suggestion(row, report, kind, banned, memory);
        match all.iter_mut().find(|known| known.text == new.text) {
            Some(known) => known.attempts += new.attempts,
            None => all.push(new),
        }
    }
    all.sort_by_key(|one| std::cmp::Reverse(one.attempts));
    all
}

fn suggestion(
    row: &RequestRow,
    report: &ErrorReport,
    kind: &KindErrors,
    banned: &BTreeSet<String>,
    memory: Window,
) -> Suggestion {
    let mut text = kind.suggestion.clone();
    let mut release = ReleaseRequest::default();
    let (least, most) = window(&row.request, memory);
    match &kind.remedy {
        Some(Remedy::Ban(site)) if banned.contains(site) => {
            text = format!("{site} is banned for it already: what is left goes elsewhere");
        }
        Some(Remedy::Ban(site)) => release.site_bans.push(site.clone()),
        Some(Remedy::MemoryMb(wanted)) if *wanted > most => {
            text = format!(
                "{text}; but a job of this request gets {most} MB at most: it needs more cores per job"
            );
            release.memory_mb = i64::try_from(most).ok();
        }
        Some(Remedy::MemoryMb(wanted)) => release.memory_mb = i64::try_from(*wanted.max(&least)).ok(),
        Some(Remedy::MoreTime) => {
            let said = row.overrides.time_per_event_sec.unwrap_or(row.request.time_per_event_sec);
            let longer = said * LONGER;
            if longer > 0.0 {
                text = format!("{text}: {longer} s instead of {said} s");
                release.time_per_event_sec = Some(longer);
            }
        }
        Some(Remedy::Exclude) => {
            let for_good = report.bad_files.iter().filter(|file| !file.units.is_empty());
            release.excluded_files = for_good.map(|file| file.lfn.clone()).collect();
        }
        None => return Suggestion { text, attempts: kind.attempts, release: None },
    }
    Suggestion { text, attempts: kind.attempts, release: Some(release) }
}

/// All of them at once, as one release.
fn together(suggestions: &[Suggestion]) -> ReleaseRequest {
    let mut whole = ReleaseRequest::default();
    for release in suggestions.iter().filter_map(|one| one.release.as_ref()) {
        whole.site_bans.extend(release.site_bans.iter().cloned());
        whole.memory_mb = whole.memory_mb.max(release.memory_mb);
        whole.time_per_event_sec = whole.time_per_event_sec.or(release.time_per_event_sec);
        whole.excluded_files.extend(release.excluded_files.iter().cloned());
    }
    whole.site_bans.sort_unstable();
    whole.site_bans.dedup();
    whole.excluded_files.sort_unstable();
    whole.excluded_files.dedup();
    whole
}

fn of_category(one: &failures::CategoryErrors) -> ErrorsOfCategory {
    ErrorsOfCategory { category: one.category, attempts: one.attempts, for_good: one.for_good }
}

fn of_site(one: failures::SiteErrors, banned: &BTreeSet<String>) -> ErrorsOfSite {
    ErrorsOfSite {
        is_banned: banned.contains(&one.site),
        site_name: one.site,
        ended: one.ended,
        failed: one.failed,
        blamed: one.blamed,
    }
}

fn of_code(one: &failures::CodeErrors) -> ErrorsOfCode {
    ErrorsOfCode { exit_code: one.exit_code, attempts: one.attempts }
}

fn of_file(one: failures::FileErrors) -> ErrorsOfFile {
    ErrorsOfFile { lfn: one.lfn, attempts: one.attempts, sites: one.sites, work_units: one.units }
}

fn of_kind(one: KindErrors) -> ErrorsOfKind {
    ErrorsOfKind {
        category: one.category,
        exit_code: one.exit_code,
        signature: one.signature,
        message: one.message,
        attempts: one.attempts,
        for_good: one.for_good,
        sites: one.sites,
        work_units: one.units,
        example: one.example,
        log_tail: one.log_tail,
        first_at: one.first_at,
        last_at: one.last_at,
        suggestion: one.suggestion,
    }
}
