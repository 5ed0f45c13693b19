//! Sites, drains and bans.

use super::{RequestActor, check_text, dags, load_request};
use crate::error::{ApiError, ApiResult};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use windlass_api::requests::{
    BanList, BanResponse, BanSite, PatchSite, SiteList, SiteResponse, UnbanResponse,
};
use windlass_core::requests::bans;
use windlass_core::requests::rows::{self, NewAlert, SiteBan, SiteRow};
use windlass_store::StoreDatabase;
use windlass_store::model::{SiteBanFilter, SiteUsage};
use windlass_types::Timestamp;
use windlass_types::requests::{Request, SiteStatus};

/// Maximum duration of a ban; disable a site to exclude it permanently.
const MAX_BAN: Duration = Duration::from_hours(24 * 366);

pub fn list_sites(db: &dyn StoreDatabase, now: Timestamp) -> ApiResult<SiteList> {
    let mut bans: BTreeMap<String, Vec<BanResponse>> = BTreeMap::new();
    for ban in db.bans(&SiteBanFilter { active_at: Some(now), ..SiteBanFilter::default() })? {
        bans.entry(ban.ban.site.clone()).or_default().push(api_ban(ban));
    }
    let usage = load_usage(db)?;
    let shown = |row: SiteRow| {
        let bans = bans.remove(&row.name).unwrap_or_default();
        let usage = usage.get(&row.name).copied().unwrap_or_default();
        api_site(row, usage, bans)
    };
    Ok(SiteList { items: db.sites()?.into_iter().map(shown).collect() })
}

pub fn get_site(db: &dyn StoreDatabase, name: &str, now: Timestamp) -> ApiResult<SiteResponse> {
    let row = load_site(db, name)?;
    let bans = load_active_bans(db, name, now)?.into_iter().map(api_ban).collect();
    let usage = load_usage(db)?.remove(name).unwrap_or_default();
    Ok(api_site(row, usage, bans))
}

/// The jobs of the engine's workers and of runs on HTCondor, by site.
fn load_usage(db: &dyn StoreDatabase) -> ApiResult<BTreeMap<String, SiteUsage>> {
    let mut usage = db.site_usage()?;
    for (site, jobs) in dags::count_running_by_site(db)? {
        usage.entry(site).or_default().running += jobs;
    }
    Ok(usage)
}

/// Lists active bans, or all.
pub fn list_bans(
    db: &dyn StoreDatabase,
    site: Option<&str>,
    request: Option<&str>,
    all: bool,
    now: Timestamp,
) -> ApiResult<BanList> {
    let filter = SiteBanFilter {
        site: site.map(str::to_owned),
        applies_to: request.map(str::to_owned),
        active_at: (!all).then_some(now),
        ..SiteBanFilter::default()
    };
    Ok(BanList { items: db.bans(&filter)?.into_iter().map(api_ban).collect() })
}

fn load_site(db: &dyn StoreDatabase, name: &str) -> ApiResult<SiteRow> {
    db.site(name)?.ok_or_else(|| {
        ApiError::not_found(format_args!("site `{name}`"))
            .with_hint("`windlass site list` lists the sites; `windlass site set NAME` adds one")
    })
}

fn load_active_bans(db: &dyn StoreDatabase, name: &str, now: Timestamp) -> ApiResult<Vec<SiteBan>> {
    let filter =
        SiteBanFilter { site: Some(name.to_owned()), active_at: Some(now), ..SiteBanFilter::default() };
    Ok(db.bans(&filter)?)
}

fn api_site(row: SiteRow, usage: SiteUsage, bans: Vec<BanResponse>) -> SiteResponse {
    SiteResponse {
        name: row.name,
        status: row.status,
        drain_until: row.drain_until,
        total_slots: row.total_slots,
        running_slots: usage.running,
        pending_slots: usage.pending,
        thresholds: row.thresholds,
        schedd_name: row.schedd_name,
        collector_host: row.collector_host,
        storage_element: row.storage_element,
        storage_path: row.storage_path,
        updated_at: row.updated_at,
        bans,
    }
}

pub(super) fn api_ban(row: SiteBan) -> BanResponse {
    let SiteBan { id, ban, created_at, removed_at, removed_by, .. } = row;
    BanResponse {
        id,
        site_name: ban.site,
        request_name: ban.request,
        reason: ban.reason,
        failure_data: ban.failure_data,
        created_by: ban.by,
        created_at,
        expires_at: ban.expires_at,
        removed_at,
        removed_by,
    }
}

/// Applies the given changes. Creates the site if it does not exist: it may be configured before its first
/// worker.
pub fn patch_site(
    db: &dyn StoreDatabase,
    name: &str,
    patch: &PatchSite,
    now: Timestamp,
) -> ApiResult<SiteResponse> {
    windlass_types::check_site_name(name).map_err(|error| ApiError::invalid(error.to_string()))?;
    if let Some(path) = patch.storage_path.as_ref().filter(|path| !path.starts_with('/')) {
        return Err(ApiError::invalid(format!("`storage_path` is `{path}`; it must begin with `/`")));
    }
    if patch.thresholds.as_ref().is_some_and(|thresholds| !thresholds.is_empty()) {
        return Err(ApiError::invalid(format!(
            "cannot set `thresholds` of site `{name}`: limits per site and role are not enforced yet"
        ))
        .with_hint("drain or ban the site for a time: `windlass site drain`, `windlass site ban`"));
    }
    let mut row = db.site(name)?.unwrap_or_else(|| new_site_row(name, now));
    let PatchSite {
        status,
        total_slots,
        thresholds,
        schedd_name,
        collector_host,
        storage_element,
        storage_path,
    } = patch.clone();
    if let Some(status) = status {
        row.drain_until = row.drain_until.filter(|_| status == SiteStatus::Draining);
        row.status = status;
    }
    row.total_slots = total_slots.or(row.total_slots);
    row.thresholds = thresholds.unwrap_or(row.thresholds);
    row.schedd_name = schedd_name.or(row.schedd_name);
    row.collector_host = collector_host.or(row.collector_host);
    row.storage_element = storage_element.or(row.storage_element);
    row.storage_path = storage_path.or(row.storage_path);
    row.updated_at = now;
    db.put_site(&row)?;
    get_site(db, name, now)
}

fn new_site_row(name: &str, now: Timestamp) -> SiteRow {
    SiteRow {
        name: name.to_owned(),
        status: SiteStatus::Enabled,
        drain_until: None,
        total_slots: None,
        running_slots: 0,
        pending_slots: 0,
        thresholds: BTreeMap::new(),
        schedd_name: None,
        collector_host: None,
        storage_element: None,
        storage_path: None,
        updated_at: now,
    }
}

/// Drains a site: running work ends, no new work starts.
pub fn drain_site(
    db: &dyn StoreDatabase,
    name: &str,
    until: Option<Timestamp>,
    now: Timestamp,
) -> ApiResult<SiteResponse> {
    if let Some(until) = until.filter(|until| *until <= now) {
        return Err(ApiError::invalid(format!("`until` is {until}, which is in the past; it is now {now}")));
    }
    load_site(db, name)?;
    db.set_site_status(name, SiteStatus::Draining, until, now)?;
    get_site(db, name, now)
}

pub fn enable_site(db: &dyn StoreDatabase, name: &str, now: Timestamp) -> ApiResult<SiteResponse> {
    load_site(db, name)?;
    db.set_site_status(name, SiteStatus::Enabled, None, now)?;
    get_site(db, name, now)
}

/// Checks the duration of a ban.
pub(super) fn is_valid_ban_duration(duration: Duration) -> bool {
    !duration.is_zero() && duration <= MAX_BAN
}

/// Bans a site: it gets no new work for a time.
pub fn ban_site(
    db: &dyn StoreDatabase,
    name: &str,
    new: &BanSite,
    actor: RequestActor<'_>,
    now: Timestamp,
) -> ApiResult<SiteResponse> {
    check_text("reason", &new.reason)?;
    let duration = Duration::from_secs(new.seconds);
    if !is_valid_ban_duration(duration) {
        return Err(ApiError::invalid("`seconds` must be between one second and one year"));
    }
    load_site(db, name)?;
    check_sites_remain(db, name, new.request_name.as_deref(), now)?;
    let ban = rows::NewBan {
        site: name.to_owned(),
        request: new.request_name.clone(),
        reason: new.reason.clone(),
        failure_data: Value::Null,
        by: actor.name.to_owned(),
        expires_at: now.plus(duration),
    };
    db.add_ban(&ban, now)?;
    db.add_alert(&ban_alert(&ban), now)?;
    get_site(db, name, now)
}

/// A request without any site would wait for no visible reason.
fn check_sites_remain(db: &dyn StoreDatabase, name: &str, of: Option<&str>, now: Timestamp) -> ApiResult<()> {
    let whom = if let Some(of) = of {
        let row = load_request(db, of)?;
        if load_open_sites(db, &row.request, now)?.iter().ne([name]) {
            return Ok(());
        }
        format!("request `{of}`")
    } else {
        let active = db.bans(&SiteBanFilter { active_at: Some(now), ..SiteBanFilter::default() })?;
        if !bans::is_last_site(name, &bans::open_sites(&db.sites()?, &active)) {
            return Ok(());
        }
        "any request".to_owned()
    };
    let detail = format!("banning site `{name}` would leave no site for {whom}");
    let hint = "enable another site or lift its ban first, or drain this one: `windlass site drain`";
    Err(ApiError::conflict("last_site", detail).with_hint(hint))
}

/// Returns the sites where a request may run: permitted by the request, not disabled and not banned for it.
pub(super) fn load_open_sites(
    db: &dyn StoreDatabase,
    request: &Request,
    now: Timestamp,
) -> ApiResult<BTreeSet<String>> {
    let holds = SiteBanFilter {
        applies_to: Some(request.request_name.clone()),
        active_at: Some(now),
        ..SiteBanFilter::default()
    };
    let closed: BTreeSet<String> = db.bans(&holds)?.into_iter().map(|ban| ban.ban.site).collect();
    let open = db.sites()?.into_iter().filter(|site| site.status != SiteStatus::Disabled);
    let open =
        open.map(|site| site.name).filter(|site| is_site_allowed(request, site) && !closed.contains(site));
    Ok(open.collect())
}

fn is_site_allowed(request: &Request, site: &str) -> bool {
    let lists = |list: &[String]| list.iter().any(|name| name == site);
    (request.site_whitelist.is_empty() || lists(&request.site_whitelist)) && !lists(&request.site_blacklist)
}

/// Every ban raises an alert.
pub(super) fn ban_alert(ban: &rows::NewBan) -> NewAlert {
    let whom =
        ban.request.as_ref().map_or_else(|| "all requests".to_owned(), |name| format!("request {name}"));
    NewAlert {
        kind: "site_banned".to_owned(),
        request: ban.request.clone(),
        message: format!(
            "{} is banned for {whom} until {} by {}: {}",
            ban.site, ban.expires_at, ban.by, ban.reason
        ),
        detail: json!({ "site": ban.site, "by": ban.by, "expires_at": ban.expires_at }),
    }
}

/// Lifts active bans: of one request, or all.
pub fn unban_site(
    db: &dyn StoreDatabase,
    name: &str,
    of: Option<&str>,
    actor: RequestActor<'_>,
    now: Timestamp,
) -> ApiResult<UnbanResponse> {
    load_site(db, name)?;
    let bans = load_active_bans(db, name, now)?;
    let meant = bans.iter().filter(|ban| of.is_none_or(|of| ban.ban.request.as_deref() == Some(of)));
    let mut removed = 0;
    for ban in meant {
        db.remove_ban(ban.id, actor.name, now)?;
        db.add_alert(&unban_alert(ban, actor), now)?;
        removed += 1;
    }
    Ok(UnbanResponse { site_name: name.to_owned(), removed })
}

fn unban_alert(ban: &SiteBan, actor: RequestActor<'_>) -> NewAlert {
    let of = ban.ban.request.as_deref().unwrap_or("all requests");
    NewAlert {
        kind: "site_ban_removed".to_owned(),
        request: ban.ban.request.clone(),
        message: format!("{} lifted the ban of {} for {of} ({})", actor.name, ban.ban.site, ban.ban.reason),
        detail: json!({ "site": ban.ban.site, "ban": ban.id, "by": actor.name }),
    }
}
