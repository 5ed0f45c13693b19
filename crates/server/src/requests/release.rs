//! Releases a held request, optionally with changes. Everything is checked first and all errors
//! are reported together; the changes and the release are one commit.

use super::request_update::{reason_or_none, update_request};
use super::submit::invalid_document_error;
use super::{RequestActor, check_text, output_retry, sites};
use crate::error::{ApiError, ApiResult, FieldError};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;
use windlass_api::requests::{ReleaseRequest, ReleaseResponse};
use windlass_core::adaptive::MemoryWindow;
use windlass_core::requests::RequestView;
use windlass_core::requests::change::RequestChange;
use windlass_core::requests::rows::{NewBan, RequestCommand, RequestCommandKind, RequestRow};
use windlass_store::StoreDatabase;
use windlass_store::model::SiteBanFilter;
use windlass_types::Timestamp;
use windlass_types::requests::{Request, RequestOverrides, RequestRunStatus, RequestStatus};

/// Maximum number of retries or rescues; more would only hide the cause.
const MAX_TRIES: i64 = 100;
/// Maximum time per event: more than eleven days is a mistake.
const MAX_EVENT_SECONDS: f64 = 1e6;
/// Maximum number of files excluded by one call.
const MAX_EXCLUDED_FILES: usize = 10_000;
/// Maximum number of names in a message.
const MAX_NAMES_SHOWN: usize = 10;

/// Data for checking a release.
struct ReleaseFacts {
    view: RequestView,
    known_sites: BTreeSet<String>,
    /// Sites where the request may run, without the bans of this release.
    open_sites: BTreeSet<String>,
    /// Sites banned for this request only.
    banned_sites: BTreeSet<String>,
    /// Files to exclude that are not in the input dataset.
    unknown_files: Vec<String>,
    /// Whether the incomplete current round was planned with files that are now excluded.
    is_outdated: bool,
    /// Range of memory that a job of the request may use, in MB.
    memory_range_mb: (u64, u64),
}

/// `duration`: default duration of site bans. `memory`: limits on the memory of jobs.
pub fn release_request(
    db: &dyn StoreDatabase,
    name: &str,
    wanted: &ReleaseRequest,
    duration: Duration,
    memory: MemoryWindow,
    actor: RequestActor<'_>,
    now: Timestamp,
) -> ApiResult<ReleaseResponse> {
    check_text("reason", &wanted.reason)?;
    let before = super::load_request(db, name)?;
    let message = RefCell::new(String::new());
    update_request(db, name, None, actor, now, |row| {
        let facts = load_release_facts(db, row, wanted, memory, now)?;
        let Some(what) = describe_release(&facts, wanted.rescue) else {
            let again = output_retry::plan_output_retry(&facts.view, wanted, actor, now);
            let again = again.ok_or_else(|| not_held_error(&facts.view))?;
            again.message.clone_into(&mut message.borrow_mut());
            return again.changes;
        };
        what.clone_into(&mut message.borrow_mut());
        let faults = check_release(wanted, &facts);
        if !faults.is_empty() {
            return Err(invalid_document_error(faults));
        }
        Ok(plan_release(row, wanted, &facts, duration, actor, now))
    })?;
    Ok(ReleaseResponse {
        request_name: name.to_owned(),
        status: before.status,
        overrides: super::load_request(db, name)?.overrides,
        message: message.into_inner(),
    })
}

fn not_held_error(view: &RequestView) -> ApiError {
    let row = &view.row;
    let detail = format!(
        "request `{}` is {}: only a held or paused request, or one with outputs that were not recorded, can be released",
        row.request.request_name, row.status
    );
    let error = ApiError::conflict("not_held", detail);
    if row.status.is_terminal() {
        error.with_hint("`restart` submits it again as its next version")
    } else {
        error
    }
}

/// Describes the effect of a release; `None`: the request cannot be released.
fn describe_release(
    ReleaseFacts { view, is_outdated, .. }: &ReleaseFacts,
    rescue: bool,
) -> Option<&'static str> {
    let run = view.run_of_round();
    match view.row.status {
        RequestStatus::Active if run.is_none_or(|run| run.paused.is_none()) => None,
        RequestStatus::Active | RequestStatus::Held if *is_outdated && !has_failed(view) => Some(
            "The run is not resumed: finished work units are kept, and the rest, without these files, \
             is queued as the next round.",
        ),
        RequestStatus::Active => Some("The run continues."),
        RequestStatus::Held if !has_failed(view) => Some("The request continues where it was."),
        RequestStatus::Held if rescue => {
            Some("The failed work units are queued as another run of the same round.")
        }
        RequestStatus::Held => Some("Finished work units are kept; the rest is queued as the next round."),
        _ => None,
    }
}

/// Whether the request is held because its run failed, at least in part.
pub(super) fn has_failed(view: &RequestView) -> bool {
    let status = view.run_of_round().map(|run| run.status);
    matches!(status, Some(RequestRunStatus::Partial | RequestRunStatus::Failed))
}

fn load_release_facts(
    db: &dyn StoreDatabase,
    row: &RequestRow,
    wanted: &ReleaseRequest,
    memory: MemoryWindow,
    now: Timestamp,
) -> ApiResult<ReleaseFacts> {
    let request = &row.request;
    let name = &request.request_name;
    let view = db.load_request_views(std::slice::from_ref(name))?.pop();
    let view = view.ok_or_else(|| ApiError::not_found(format_args!("request `{name}`")))?;
    let holds =
        SiteBanFilter { applies_to: Some(name.clone()), active_at: Some(now), ..SiteBanFilter::default() };
    let bans = db.bans(&holds)?;
    Ok(ReleaseFacts {
        is_outdated: view.is_outdated_by(&row.overrides.clone().merged_with(release_overrides(wanted))),
        view,
        open_sites: sites::load_open_sites(db, request, now)?,
        banned_sites: bans
            .iter()
            .filter(|ban| ban.ban.request.is_some())
            .map(|ban| ban.ban.site.clone())
            .collect(),
        known_sites: db.sites()?.into_iter().map(|site| site.name).collect(),
        unknown_files: find_unknown_files(db, request, &wanted.excluded_files)?,
        memory_range_mb: memory_range_mb(request, memory),
    })
}

/// Returns the files that are not in the input dataset. Unknown with an external catalog.
fn find_unknown_files(db: &dyn StoreDatabase, request: &Request, files: &[String]) -> ApiResult<Vec<String>> {
    let Some(dataset) = request.input_dataset.as_ref().filter(|_| !files.is_empty()) else {
        return Ok(Vec::new());
    };
    if db.dataset(dataset)?.is_none() {
        return Ok(Vec::new());
    }
    let there: BTreeSet<String> =
        db.dataset_files(dataset, false)?.into_iter().map(|file| file.lfn).collect();
    Ok(files.iter().filter(|file| !there.contains(*file)).cloned().collect())
}

/// the minimum that every job gets, and the maximum that is requested of a site.
pub(super) fn memory_range_mb(request: &Request, memory: MemoryWindow) -> (u64, u64) {
    (memory.default_memory_mb(request.multicore), memory.max_memory_mb(request.multicore))
}

/// Returns all errors of the release.
fn check_release(wanted: &ReleaseRequest, facts: &ReleaseFacts) -> Vec<FieldError> {
    let mut faults = Vec::new();
    let mut fault = |field: &str, reason: String, remedy: &str| {
        faults.push(FieldError { field: field.to_owned(), reason, remedy: Some(remedy.to_owned()) });
    };
    if wanted.rescue && !has_failed(&facts.view) {
        let reason = "requires a failed run, and the latest run of this request did not fail".to_owned();
        fault("rescue", reason, "release it without `rescue`: it continues where it was");
    }
    if wanted.rescue && facts.is_outdated && !wanted.excluded_files.is_empty() {
        let reason =
            "excludes files, but a rescue reads the files that its round was planned with".to_owned();
        let remedy = "release it without `rescue`: finished work units are kept, and the next round excludes the files";
        fault("excluded_files", reason, remedy);
    }
    check_sites(wanted, facts, &mut fault);
    let (least, most) = facts.memory_range_mb;
    if let Some(memory) = wanted.memory_mb
        && !u64::try_from(memory).is_ok_and(|memory| (least..=most).contains(&memory))
    {
        let reason = format!("is {memory}; must be between {least} and {most} MB for this request");
        fault("memory_mb", reason, "more memory requires more cores per job, in a new request");
    }
    check_times(wanted, &mut fault);
    for (field, value) in
        [("retry_count", wanted.retry_count), ("max_rescue_attempts", wanted.max_rescue_attempts)]
    {
        if let Some(value) = value.filter(|value| !(0..=MAX_TRIES).contains(value)) {
            let reason = format!("is {value}; must be between 0 and {MAX_TRIES}");
            fault(field, reason, "if more retries are needed, the cause is elsewhere");
        }
    }
    if let Some(share) = wanted.error_hold_threshold.filter(|share| !(0.0..=1.0).contains(share)) {
        let reason = format!("is {share}; must be a share of work units between 0 and 1");
        fault("error_hold_threshold", reason, "0.3 holds the request when 30 % have failed");
    }
    check_files(wanted, facts, &mut fault);
    faults
}

fn check_times(wanted: &ReleaseRequest, fault: &mut impl FnMut(&str, String, &str)) {
    let Some(seconds) = wanted.time_per_event_sec else { return };
    if !(seconds > 0.0 && seconds <= MAX_EVENT_SECONDS) {
        let reason = format!("is {seconds}; must be greater than 0 and at most {MAX_EVENT_SECONDS} s");
        fault("time_per_event_sec", reason, "the time of one event, not of a job");
    }
    if wanted.rescue {
        let reason = "applies to newly planned jobs, and a rescue reuses the existing ones".to_owned();
        fault(
            "time_per_event_sec",
            reason,
            "release it without `rescue`: the next round does the remaining work",
        );
    }
}

fn check_sites(wanted: &ReleaseRequest, facts: &ReleaseFacts, fault: &mut impl FnMut(&str, String, &str)) {
    for (n, site) in
        wanted.site_bans.iter().enumerate().filter(|(_, site)| !facts.known_sites.contains(*site))
    {
        let known = format!("known sites: {}", join_first_names(&facts.known_sites));
        fault(&format!("site_bans[{n}]"), format!("is `{site}`, an unknown site"), &known);
    }
    if let Some(seconds) = wanted.ban_seconds {
        if !u64::try_from(seconds)
            .is_ok_and(|seconds| sites::is_valid_ban_duration(Duration::from_secs(seconds)))
        {
            let reason = format!("is {seconds}; must be between one second and one year");
            fault("ban_seconds", reason, "to exclude a site permanently, disable it: `windlass site set`");
        }
        if wanted.site_bans.is_empty() {
            let reason = "sets a ban duration, but no site is given".to_owned();
            fault("ban_seconds", reason, "name the site in `site_bans`, or omit it");
        }
    }
    let is_left = facts.open_sites.iter().any(|site| !wanted.site_bans.contains(site));
    if !wanted.site_bans.is_empty() && !facts.open_sites.is_empty() && !is_left {
        let reason = format!(
            "would leave no site for the request: it may use {}",
            join_first_names(&facts.open_sites)
        );
        fault("site_bans", reason, "keep one of them, or lift another ban first");
    }
}

fn check_files(wanted: &ReleaseRequest, facts: &ReleaseFacts, fault: &mut impl FnMut(&str, String, &str)) {
    let request = &facts.view.row.request;
    if wanted.excluded_files.is_empty() {
        return;
    }
    let Some(dataset) = &request.input_dataset else {
        let reason = "excludes files, but this request generates its events and reads none".to_owned();
        return fault("excluded_files", reason, "omit it");
    };
    if wanted.excluded_files.len() > MAX_EXCLUDED_FILES {
        let reason =
            format!("has {} files; the maximum is {MAX_EXCLUDED_FILES}", wanted.excluded_files.len());
        fault("excluded_files", reason, "exclude them in several calls, or invalidate them in the catalog");
    }
    for unknown_file in facts.unknown_files.iter().take(MAX_NAMES_SHOWN) {
        let n = wanted.excluded_files.iter().position(|file| file == unknown_file).unwrap_or_default();
        let reason = format!("is `{unknown_file}`, which is not a file of {dataset}");
        fault(&format!("excluded_files[{n}]"), reason, "use the logical name as in the catalog");
    }
}

/// Joins the first names.
fn join_first_names(names: &BTreeSet<String>) -> String {
    let shown: Vec<&str> = names.iter().take(MAX_NAMES_SHOWN).map(String::as_str).collect();
    match names.len().saturating_sub(MAX_NAMES_SHOWN) {
        0 if shown.is_empty() => "none".to_owned(),
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Plans the changes and the command to release.
fn plan_release(
    row: &RequestRow,
    wanted: &ReleaseRequest,
    facts: &ReleaseFacts,
    duration: Duration,
    actor: RequestActor<'_>,
    now: Timestamp,
) -> Vec<RequestChange> {
    let duration =
        wanted.ban_seconds.and_then(|seconds| seconds.try_into().ok()).map_or(duration, Duration::from_secs);
    let given = reason_or_none(&wanted.reason);
    let mut changes = Vec::new();
    let overrides =
        row.overrides.clone().merged_with(release_overrides(wanted).record_excluded_by(actor.name));
    if overrides != row.overrides {
        changes.push(RequestChange::Overrides(Box::new(overrides)));
    }
    let new: BTreeSet<&String> =
        wanted.site_bans.iter().filter(|site| !facts.banned_sites.contains(*site)).collect();
    for site in new {
        let ban = NewBan {
            site: site.clone(),
            request: Some(row.request.request_name.clone()),
            reason: given.to_owned(),
            failure_data: Value::Null,
            by: actor.name.to_owned(),
            expires_at: now.plus(duration),
        };
        changes.push(RequestChange::Alert(Box::new(sites::ban_alert(&ban))));
        changes.push(RequestChange::Ban(Box::new(ban)));
    }
    let reason = match describe_overrides(wanted) {
        Some(with) => format!("{given} ({with})"),
        None => given.to_owned(),
    };
    let command = RequestCommand {
        rescue: wanted.rescue,
        ..RequestCommand::new(RequestCommandKind::Release, actor.name, reason, now)
    };
    changes.push(RequestChange::SetCommand(Some(command)));
    changes
}

/// The numbers were checked before.
fn release_overrides(wanted: &ReleaseRequest) -> RequestOverrides {
    RequestOverrides {
        retry_count: wanted.retry_count.and_then(|count| count.try_into().ok()),
        error_hold_threshold: wanted.error_hold_threshold,
        max_rescue_attempts: wanted.max_rescue_attempts.and_then(|count| count.try_into().ok()),
        memory_mb: wanted.memory_mb.and_then(|memory| memory.try_into().ok()),
        time_per_event_sec: wanted.time_per_event_sec,
        excluded_files: wanted.excluded_files.iter().cloned().collect(),
        ..RequestOverrides::default()
    }
}

/// Describes the changes for the audit trail: `without T2_A; 4000 MB`.
pub(super) fn describe_overrides(wanted: &ReleaseRequest) -> Option<String> {
    let bans = wanted.site_bans.join(", ");
    let files = match wanted.excluded_files.as_slice() {
        [] => None,
        [one] => Some(format!("without {one}")),
        many => Some(format!("without {} input files", many.len())),
    };
    let parts = [
        wanted.rescue.then(|| "within its round".to_owned()),
        (!bans.is_empty()).then(|| format!("not at {bans}")),
        wanted.memory_mb.map(|memory| format!("{memory} MB")),
        wanted.time_per_event_sec.map(|seconds| format!("{seconds} s per event")),
        wanted.retry_count.map(|count| render_count(count, "retry", "retries")),
        wanted.error_hold_threshold.map(|share| format!("held from {} % on", share * 100.0)),
        wanted.max_rescue_attempts.map(|count| render_count(count, "rescue", "rescues")),
        files,
    ];
    let descriptions: Vec<String> = parts.into_iter().flatten().collect();
    (!descriptions.is_empty()).then(|| descriptions.join("; "))
}

fn render_count(count: i64, one: &str, many: &str) -> String {
    format!("at most {count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_overrides_are_described() {
        assert_eq!(describe_overrides(&ReleaseRequest::default()), None);
        let wanted = ReleaseRequest {
            site_bans: vec!["T2_A".into(), "T2_B".into()],
            memory_mb: Some(3000),
            time_per_event_sec: Some(2.5),
            error_hold_threshold: Some(0.3),
            excluded_files: vec!["/store/a".into(), "/store/b".into()],
            ..ReleaseRequest::default()
        };
        let expected =
            "not at T2_A, T2_B; 3000 MB; 2.5 s per event; held from 30 % on; without 2 input files";
        assert_eq!(describe_overrides(&wanted).as_deref(), Some(expected));
    }
}
