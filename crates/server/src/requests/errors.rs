//! Errors of a request for operators: the failure counts of its runs, and suggested actions.

use super::load_request;
use super::release::memory_range_mb;
use crate::error::ApiResult;
use std::collections::BTreeSet;
use windlass_api::requests::{
    ErrorsOfCategory, ErrorsOfCode, ErrorsOfFile, ErrorsOfSignature, ErrorsOfSite, RecoverySuggestion,
    ReleaseRequest, RequestErrors,
};
use windlass_core::adaptive::MemoryWindow;
use windlass_core::requests::failures::{self, ErrorReport, FailureRemedy, FailureTally, SimilarErrors};
use windlass_core::requests::rows::{RequestProgress, RequestRow};
use windlass_store::StoreDatabase;
use windlass_store::model::{RequestRunFilter, SiteBanFilter};
use windlass_types::Timestamp;
use windlass_types::requests::RequestStatus;

/// Factor for the time per event after timeouts; the time that the jobs would have needed is unknown.
const TIMEOUT_FACTOR: f64 = 4.0;

/// Collects the errors of the current round and its rescues, or of all rounds.
pub fn get_request_errors(
    db: &dyn StoreDatabase,
    name: &str,
    all: bool,
    memory: MemoryWindow,
    now: Timestamp,
) -> ApiResult<RequestErrors> {
    let row = load_request(db, name)?;
    let process = db.process(name)?;
    let tallies = match &process {
        Some(process) => load_tallies(db, process, all)?,
        None => Vec::new(),
    };
    let report =
        failures::build_error_report(&FailureTally::merge_all(tallies.iter().map(|(_, tally)| tally)));
    let banned = load_banned_sites(db, name, now)?;
    let failed_at =
        if row.status == RequestStatus::Held { banned_failing_sites(&report, &banned) } else { None };
    let suggestions = match failed_at {
        Some(sites) => vec![suggest_release_after_bans(&report, &sites, has_failed_run(db, name)?)],
        None => plan_suggestions(&row, &report, &banned, memory),
    };
    Ok(RequestErrors {
        request_name: name.to_owned(),
        status: row.status,
        round: process.map(|process| process.round),
        all,
        dags: tallies.into_iter().map(|(run, _)| run).collect(),
        attempts_ended: report.attempts_ended,
        attempts_failed: report.attempts_failed,
        by_category: report.by_category.iter().map(api_category_errors).collect(),
        by_site: report.by_site.into_iter().map(|site| api_site_errors(site, &banned)).collect(),
        by_exit_code: report.by_exit_code.iter().map(api_code_errors).collect(),
        bad_files: report.bad_files.into_iter().map(api_file_errors).collect(),
        more_bad_files: report.more_bad_files,
        kinds: report.kinds.into_iter().map(api_signature_errors).collect(),
        of_other_kinds: report.of_other_kinds,
        suggested_release: merge_releases(&suggestions),
        suggestions,
        reason: row.reason,
    })
}

fn load_tallies(
    db: &dyn StoreDatabase,
    process: &RequestProgress,
    all: bool,
) -> ApiResult<Vec<(String, FailureTally)>> {
    let mut tallies = db.list_failure_tallies(&process.uuid)?;
    if !all {
        let filter = RequestRunFilter { process: Some(process.uuid.clone()), ..RequestRunFilter::default() };
        let runs = db.request_runs(&filter)?;
        let of_round: BTreeSet<&str> =
            runs.iter().filter(|run| run.round == process.round).map(|run| run.uuid.as_str()).collect();
        tallies.retain(|(run, _)| of_round.contains(run.as_str()));
    }
    Ok(tallies)
}

fn load_banned_sites(db: &dyn StoreDatabase, name: &str, now: Timestamp) -> ApiResult<BTreeSet<String>> {
    let filter =
        SiteBanFilter { applies_to: Some(name.to_owned()), active_at: Some(now), ..SiteBanFilter::default() };
    Ok(db.bans(&filter)?.into_iter().map(|ban| ban.ban.site).collect())
}

/// Plans one suggestion per action; those supported by most attempts come first.
fn plan_suggestions(
    row: &RequestRow,
    report: &ErrorReport,
    banned: &BTreeSet<String>,
    memory: MemoryWindow,
) -> Vec<RecoverySuggestion> {
    let mut all: Vec<RecoverySuggestion> = Vec::new();
    for kind in &report.kinds {
        let new = plan_suggestion(row, report, kind, banned, memory);
        match all.iter_mut().find(|known| known.text == new.text) {
            Some(known) => known.attempts += new.attempts,
            None => all.push(new),
        }
    }
    all.sort_by_key(|one| std::cmp::Reverse(one.attempts));
    all
}

/// Returns the sites of all failures that no retry cured, if all of these sites are banned.
fn banned_failing_sites<'r>(report: &'r ErrorReport, banned: &BTreeSet<String>) -> Option<BTreeSet<&'r str>> {
    let final_failures = report.kinds.iter().filter(|kind| kind.for_good > 0);
    let sites: BTreeSet<&str> =
        final_failures.flat_map(|kind| kind.sites.keys().map(String::as_str)).collect();
    let are_banned = report.of_other_kinds == 0 && sites.iter().all(|site| banned.contains(*site));
    (!sites.is_empty() && are_banned).then_some(sites)
}

fn has_failed_run(db: &dyn StoreDatabase, name: &str) -> ApiResult<bool> {
    Ok(db.load_request_views(&[name.to_owned()])?.first().is_some_and(super::release::has_failed))
}

/// The cause is removed already: nothing has to change but that the request continues.
fn suggest_release_after_bans(
    report: &ErrorReport,
    sites: &BTreeSet<&str>,
    can_rescue: bool,
) -> RecoverySuggestion {
    let names = sites.iter().copied().collect::<Vec<_>>().join(", ");
    let action = if can_rescue {
        "release the request with a rescue (`--rescue`), and the failed work units run at other sites"
    } else {
        "release the request, and it continues at other sites"
    };
    RecoverySuggestion {
        text: format!("all failures are of banned sites ({names}): {action}"),
        attempts: report.attempts_failed,
        release: Some(ReleaseRequest { rescue: can_rescue, ..ReleaseRequest::default() }),
    }
}

fn plan_suggestion(
    row: &RequestRow,
    report: &ErrorReport,
    kind: &SimilarErrors,
    banned: &BTreeSet<String>,
    memory: MemoryWindow,
) -> RecoverySuggestion {
    let mut text = kind.suggestion.clone();
    let mut release = ReleaseRequest::default();
    let (least, most) = memory_range_mb(&row.request, memory);
    match &kind.remedy {
        Some(FailureRemedy::Ban(site)) if banned.contains(site) => {
            text = format!("{site} is already banned for this request: the remaining work goes elsewhere");
        }
        Some(FailureRemedy::Ban(site)) => release.site_bans.push(site.clone()),
        Some(FailureRemedy::MemoryMb(wanted)) if *wanted > most => {
            text = format!(
                "{text}; but jobs of this request get at most {most} MB: more memory requires more cores per job"
            );
            release.memory_mb = i64::try_from(most).ok();
        }
        Some(FailureRemedy::MemoryMb(wanted)) => release.memory_mb = i64::try_from(*wanted.max(&least)).ok(),
        Some(FailureRemedy::MoreTime) => {
            let given = row.overrides.time_per_event_sec.unwrap_or(row.request.time_per_event_sec);
            let longer = given * TIMEOUT_FACTOR;
            if longer > 0.0 {
                text = format!("{text}: {longer} s instead of {given} s");
                release.time_per_event_sec = Some(longer);
            }
        }
        Some(FailureRemedy::Exclude) => {
            let for_good = report.bad_files.iter().filter(|file| !file.units.is_empty());
            release.excluded_files = for_good.map(|file| file.lfn.clone()).collect();
        }
        None => return RecoverySuggestion { text, attempts: kind.attempts, release: None },
    }
    RecoverySuggestion { text, attempts: kind.attempts, release: Some(release) }
}

/// Merges all suggestions into one release.
fn merge_releases(suggestions: &[RecoverySuggestion]) -> ReleaseRequest {
    let mut whole = ReleaseRequest::default();
    for release in suggestions.iter().filter_map(|one| one.release.as_ref()) {
        whole.rescue |= release.rescue;
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

fn api_category_errors(one: &failures::CategoryErrors) -> ErrorsOfCategory {
    ErrorsOfCategory { category: one.category, attempts: one.attempts, for_good: one.for_good }
}

fn api_site_errors(one: failures::SiteErrors, banned: &BTreeSet<String>) -> ErrorsOfSite {
    ErrorsOfSite {
        is_banned: banned.contains(&one.site),
        site_name: one.site,
        ended: one.ended,
        failed: one.failed,
        blamed: one.blamed,
    }
}

fn api_code_errors(one: &failures::CodeErrors) -> ErrorsOfCode {
    ErrorsOfCode { exit_code: one.exit_code, attempts: one.attempts }
}

fn api_file_errors(one: failures::FileErrors) -> ErrorsOfFile {
    ErrorsOfFile { lfn: one.lfn, attempts: one.attempts, sites: one.sites, work_units: one.units }
}

fn api_signature_errors(one: SimilarErrors) -> ErrorsOfSignature {
    ErrorsOfSignature {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use windlass_core::requests::failures::{FailedAttemptReport, RoleCounts};
    use windlass_types::FailureClass;
    use windlass_types::requests::NodeRole;

    /// Failed attempts: where, whether no retry cured them.
    fn report(attempts: &[(&str, bool)]) -> ErrorReport {
        let attempts: Vec<FailedAttemptReport> = (1..)
            .zip(attempts)
            .map(|(seq, (site, is_final))| FailedAttemptReport {
                seq,
                unit: seq as u32,
                node: "proc_000000".into(),
                role: NodeRole::Processing,
                attempt: 1,
                site: Some((*site).to_owned()),
                class: FailureClass::Permanent,
                code: 8001,
                signature: format!("{site} {is_final}"),
                message: "no luck".into(),
                is_final: *is_final,
                bad_files: Vec::new(),
                log_tail: String::new(),
                memory_mb: None,
                at: Timestamp(0),
            })
            .collect();
        let mut ended = BTreeMap::new();
        for one in &attempts {
            let count = RoleCounts::for_role(NodeRole::Processing, 10);
            ended.insert(one.site.clone().unwrap_or_default(), count);
        }
        let mut tally = FailureTally::default();
        tally.add_reports(&attempts, &ended);
        failures::build_error_report(&tally)
    }

    /// The site of each failed attempt, and whether the failure is final.
    type FailedAttempts = [(&'static str, bool)];

    #[test]
    fn failures_at_banned_sites_only_suggest_a_plain_release() {
        let banned: BTreeSet<String> = ["T2_A".to_owned(), "T2_B".to_owned()].into();
        // Failed attempts → the sites, if all that count are banned
        let table: &[(&FailedAttempts, Option<&[&str]>)] = &[
            (&[("T2_A", true), ("T2_B", true), ("T2_A", true)], Some(&["T2_A", "T2_B"])),
            (&[("T2_A", true), ("T1_C", false)], Some(&["T2_A"])),
            (&[("T2_A", true), ("T1_C", true)], None),
            (&[("T2_A", false)], None),
            (&[], None),
        ];
        for (attempts, expected) in table {
            let report = report(attempts);
            let sites = banned_failing_sites(&report, &banned);
            assert_eq!(
                sites.as_ref().map(|sites| sites.iter().copied().collect()),
                expected.map(<[&str]>::to_vec)
            );
        }
        let report = report(&[("T2_A", true), ("T2_B", true)]);
        let sites = banned_failing_sites(&report, &banned).unwrap();
        let suggestion = suggest_release_after_bans(&report, &sites, true);
        assert!(
            suggestion.text.starts_with("all failures are of banned sites (T2_A, T2_B): "),
            "{suggestion:?}"
        );
        assert!(merge_releases(&[suggestion]).rescue);
        assert!(!merge_releases(&[suggest_release_after_bans(&report, &sites, false)]).rescue);
    }
}
