//! Sites and their bans, settings, alerts: everything that is not part of a single request.

use super::row_decoding::{read_enum, read_timestamp, read_unsigned, to_signed};
use crate::StoreError;
use crate::db::{SqlConnection, SqlRow, values};
use crate::error::SqlError;
use crate::model::{AlertFilter, SettingRow, SiteBanFilter, SiteUsage};
use crate::sql::requests as sql;
use crate::sql_store::column_decoding;
use crate::sql_store::query_builder::SqlQuery;
use serde_json::Value;
use std::collections::BTreeMap;
use windlass_core::requests::rows::{AlertRow, NewAlert, NewBan, SiteBan, SiteRow};
use windlass_types::Timestamp;
use windlass_types::requests::SiteStatus;

pub(super) fn list_sites(db: &impl SqlConnection, name: Option<&str>) -> Result<Vec<SiteRow>, SqlError> {
    let mut query = SqlQuery::new(sql::SELECT_SITES, vec![]);
    query.push("1 = 1", vec![]);
    super::request_lists::push_equal(&mut query, "s.name", name.map(str::to_owned));
    query.push(" ORDER BY s.name", vec![]);
    query.read_rows(db, read_site_row)
}

/// Counts running and claimed jobs by site.
pub(super) fn load_site_usage(db: &impl SqlConnection) -> Result<BTreeMap<String, SiteUsage>, SqlError> {
    let mut usage: BTreeMap<String, SiteUsage> = BTreeMap::new();
    db.query_each(sql::SITE_USAGE, values![], |row| {
        let (site, status, count): (String, i64, u64) = (row.get(0)?, row.get(1)?, read_unsigned(row, 2)?);
        let of_site = usage.entry(site).or_default();
        if status == RUNNING_STATUS {
            of_site.running = count;
        } else {
            of_site.pending = count;
        }
        Ok(())
    })?;
    Ok(usage)
}

/// As in `job.status`.
const RUNNING_STATUS: i64 = 4;

fn read_site_row(row: &SqlRow<'_>) -> Result<SiteRow, SqlError> {
    let total: Option<i64> = row.get(3)?;
    Ok(SiteRow {
        name: row.get(0)?,
        status: read_enum(row, 1)?,
        drain_until: column_decoding::read_time(row, 2)?,
        total_slots: total.map(|_| read_unsigned(row, 3)).transpose()?,
        running_slots: read_unsigned(row, 4)?,
        pending_slots: read_unsigned(row, 5)?,
        thresholds: column_decoding::read_required_json(row, 6)?,
        schedd_name: row.get(7)?,
        collector_host: row.get(8)?,
        storage_element: row.get(9)?,
        storage_path: row.get(10)?,
        updated_at: read_timestamp(row, 11)?,
    })
}

pub(super) fn record_site_slots(
    db: &impl SqlConnection,
    site: &str,
    total: u64,
    now: Timestamp,
) -> Result<(), SqlError> {
    let total = i64::try_from(total).unwrap_or(i64::MAX);
    db.execute(sql::RECORD_SITE_SLOTS, values![site, total, now.0]).map(drop)
}

pub(super) fn put_site(db: &impl SqlConnection, site: &SiteRow) -> Result<(), SqlError> {
    let slots = |n| to_signed("number of slots of", n);
    let thresholds = column_decoding::render_json(&site.thresholds)?;
    let values = values![
        site.name,
        site.status.name(),
        site.drain_until.map(|at| at.0),
        site.total_slots.map(slots).transpose()?,
        slots(site.running_slots)?,
        slots(site.pending_slots)?,
        thresholds,
        site.schedd_name.as_deref(),
        site.collector_host.as_deref(),
        site.storage_element.as_deref(),
        site.storage_path.as_deref(),
        site.updated_at.0,
    ];
    db.execute(sql::PUT_SITE, values)?;
    Ok(())
}

pub(super) fn set_site_status(
    db: &impl SqlConnection,
    name: &str,
    status: SiteStatus,
    drain_until: Option<Timestamp>,
    now: Timestamp,
) -> Result<(), SqlError> {
    let values = values![status.name(), drain_until.map(|at| at.0), now.0, name];
    match db.execute(sql::SET_SITE_STATUS, values)? {
        0 => Err(missing_site(name)),
        _ => Ok(()),
    }
}

fn missing_site(name: &str) -> SqlError {
    StoreError::NoSuchName { what: "site".into(), name: name.to_owned() }.into()
}

pub(super) fn add_ban(db: &impl SqlConnection, ban: &NewBan, now: Timestamp) -> Result<i64, SqlError> {
    if !db.exists(sql::SITE_EXISTS, [&ban.site])? {
        return Err(missing_site(&ban.site));
    }
    if let Some(request) = &ban.request
        && !db.exists(sql::REQUEST_EXISTS, [request])?
    {
        return Err(super::apply_requests::missing_request(request));
    }
    let data = column_decoding::render_json(&ban.failure_data)?;
    let values = values![ban.site, ban.request.as_deref(), ban.reason, data, ban.by, now.0, ban.expires_at.0];
    db.query_one(sql::ADD_BAN, values, |row| row.get(0))
}

pub(super) fn list_bans(db: &impl SqlConnection, filter: &SiteBanFilter) -> Result<Vec<SiteBan>, SqlError> {
    let SiteBanFilter {
        site,
        applies_to: holds_for,
        only_general,
        active_at,
        expired_unnotified: expired_untold,
    } = filter;
    let mut query = SqlQuery::new(sql::SELECT_BANS, vec![]);
    query.push("1 = 1", vec![]);
    super::request_lists::push_equal(&mut query, "b.site", site.clone());
    if let Some(request) = holds_for {
        query.push(" AND (b.request IS NULL OR b.request = ?)", vec![Box::new(request.clone())]);
    }
    if *only_general {
        query.push(" AND b.request IS NULL", vec![]);
    }
    if let Some(now) = active_at {
        query.push(" AND b.removed_at IS NULL AND b.expires_at > ?", vec![Box::new(now.0)]);
    }
    if let Some(now) = expired_untold {
        let over = " AND b.removed_at IS NULL AND b.expiry_notified_at IS NULL AND b.expires_at <= ?";
        query.push(over, vec![Box::new(now.0)]);
    }
    query.push(" ORDER BY b.id", vec![]);
    query.read_rows(db, read_ban_row)
}

fn read_ban_row(row: &SqlRow<'_>) -> Result<SiteBan, SqlError> {
    Ok(SiteBan {
        id: row.get(0)?,
        ban: NewBan {
            site: row.get(1)?,
            request: row.get(2)?,
            reason: row.get(3)?,
            failure_data: column_decoding::read_required_json(row, 4)?,
            by: row.get(5)?,
            expires_at: read_timestamp(row, 7)?,
        },
        created_at: read_timestamp(row, 6)?,
        removed_at: column_decoding::read_time(row, 8)?,
        removed_by: row.get(9)?,
        expiry_told_at: column_decoding::read_time(row, 10)?,
    })
}

pub(super) fn remove_ban(db: &impl SqlConnection, id: i64, by: &str, now: Timestamp) -> Result<(), SqlError> {
    match db.execute(sql::REMOVE_BAN, values![now.0, by, id])? {
        0 => Err(StoreError::NoSuch { what: "ban".into(), id }.into()),
        _ => Ok(()),
    }
}

pub(super) fn mark_expiry_notified(
    db: &impl SqlConnection,
    ids: &[i64],
    now: Timestamp,
) -> Result<(), SqlError> {
    ids.iter().try_for_each(|id| db.execute(sql::MARK_EXPIRY_NOTIFIED, [now.0, *id]).map(|_| ()))
}

pub(super) fn find_setting(db: &impl SqlConnection, name: &str) -> Result<Option<Value>, SqlError> {
    db.query_optional(sql::SETTING, [name], |row| column_decoding::read_required_json(row, 0))
}

pub(super) fn list_settings(db: &impl SqlConnection) -> Result<Vec<SettingRow>, SqlError> {
    db.query_all(sql::SELECT_SETTINGS, values![], |row| {
        Ok(SettingRow {
            name: row.get(0)?,
            value: column_decoding::read_required_json(row, 1)?,
            changed_at: read_timestamp(row, 2)?,
            changed_by: row.get(3)?,
        })
    })
}

pub(super) fn set_setting(
    db: &impl SqlConnection,
    name: &str,
    value: Option<&Value>,
    by: &str,
    now: Timestamp,
) -> Result<(), SqlError> {
    match value.map(column_decoding::render_json).transpose()? {
        None => db.execute(sql::DELETE_SETTING, [name])?,
        Some(value) => db.execute(sql::SET_SETTING, values![name, value, now.0, by])?,
    };
    Ok(())
}

pub(super) fn add_alert(db: &impl SqlConnection, alert: &NewAlert, now: Timestamp) -> Result<i64, SqlError> {
    let detail = column_decoding::render_json(&alert.detail)?;
    let values = values![alert.kind, alert.request.as_deref(), alert.message, detail, now.0];
    db.query_one(sql::ADD_ALERT, values, |row| row.get(0))
}

pub(super) fn list_alerts(db: &impl SqlConnection, filter: &AlertFilter) -> Result<Vec<AlertRow>, SqlError> {
    let mut query = SqlQuery::new(sql::SELECT_ALERTS, vec![]);
    query.push("1 = 1", vec![]);
    super::request_lists::push_equal(&mut query, "a.request", filter.request.clone());
    super::request_lists::push_equal(&mut query, "a.kind", filter.kind.clone());
    if filter.only_unnotified {
        query.push(" AND a.notified_at IS NULL", vec![]);
    }
    query.push(" ORDER BY a.id DESC", vec![]);
    query.push_page(0, filter.limit);
    let mut newest_first = query.read_rows(db, read_alert_row)?;
    newest_first.reverse();
    Ok(newest_first)
}

fn read_alert_row(row: &SqlRow<'_>) -> Result<AlertRow, SqlError> {
    let alert = NewAlert {
        kind: row.get(1)?,
        request: row.get(2)?,
        message: row.get(3)?,
        detail: column_decoding::read_required_json(row, 4)?,
    };
    Ok(AlertRow {
        id: row.get(0)?,
        alert,
        at: read_timestamp(row, 5)?,
        told_at: column_decoding::read_time(row, 6)?,
    })
}

pub(super) fn mark_alerts_notified(
    db: &impl SqlConnection,
    ids: &[i64],
    now: Timestamp,
) -> Result<(), SqlError> {
    ids.iter().try_for_each(|id| db.execute(sql::MARK_ALERT_NOTIFIED, [now.0, *id]).map(|_| ()))
}
