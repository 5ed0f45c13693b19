//! Sites and their bans, settings, alerts: what belongs to no single request.

use super::rows::{at, natural, number, word};
use crate::Error;
use crate::books::column;
use crate::books::query::Query;
use crate::db::{Db, Row, values};
use crate::error::Fault;
use crate::model::{AlertFilter, BanFilter, SettingRow, SiteUsage};
use crate::sql::requests as sql;
use serde_json::Value;
use std::collections::BTreeMap;
use windlass_core::requests::book::{AlertRow, NewAlert, NewBan, SiteBan, SiteRow};
use windlass_types::Timestamp;
use windlass_types::requests::SiteStatus;

pub(super) fn sites(db: &impl Db, name: Option<&str>) -> Result<Vec<SiteRow>, Fault> {
    let mut query = Query::new(sql::SELECT_SITES, vec![]);
    query.push("1 = 1", vec![]);
    super::lists::push_equal(&mut query, "s.name", name.map(str::to_owned));
    query.push(" ORDER BY s.name", vec![]);
    query.run(db, site_row)
}

/// Jobs that run at each site, and jobs that wait at its workers.
pub(super) fn usage(db: &impl Db) -> Result<BTreeMap<String, SiteUsage>, Fault> {
    let mut usage: BTreeMap<String, SiteUsage> = BTreeMap::new();
    db.for_each(sql::SITE_USAGE, values![], |row| {
        let (site, status, count): (String, i64, u64) = (row.get(0)?, row.get(1)?, natural(row, 2)?);
        let of_site = usage.entry(site).or_default();
        if status == RUNNING {
            of_site.running = count;
        } else {
            of_site.pending = count;
        }
        Ok(())
    })?;
    Ok(usage)
}

/// As `job.status` has it.
const RUNNING: i64 = 4;

fn site_row(row: &Row<'_>) -> Result<SiteRow, Fault> {
    let total: Option<i64> = row.get(3)?;
    Ok(SiteRow {
        name: row.get(0)?,
        status: word(row, 1)?,
        drain_until: column::time(row, 2)?,
        total_slots: total.map(|_| natural(row, 3)).transpose()?,
        running_slots: natural(row, 4)?,
        pending_slots: natural(row, 5)?,
        thresholds: column::required_json(row, 6)?,
        schedd_name: row.get(7)?,
        collector_host: row.get(8)?,
        storage_element: row.get(9)?,
        storage_path: row.get(10)?,
        updated_at: at(row, 11)?,
    })
}

pub(super) fn note_slots(db: &impl Db, site: &str, total: u64, now: Timestamp) -> Result<(), Fault> {
    let total = i64::try_from(total).unwrap_or(i64::MAX);
    db.execute(sql::NOTE_SLOTS, values![site, total, now.0]).map(drop)
}

pub(super) fn put(db: &impl Db, site: &SiteRow) -> Result<(), Fault> {
    let slots = |n| number("a number of slots of", n);
    let thresholds = column::json_text(&site.thresholds)?;
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

pub(super) fn set_status(
    db: &impl Db,
    name: &str,
    status: SiteStatus,
    drain_until: Option<Timestamp>,
    now: Timestamp,
) -> Result<(), Fault> {
    let values = values![status.name(), drain_until.map(|at| at.0), now.0, name];
    match db.execute(sql::SET_SITE_STATUS, values)? {
        0 => Err(no_site(name)),
        _ => Ok(()),
    }
}

fn no_site(name: &str) -> Fault {
    Error::NoSuchName { what: "site".into(), name: name.to_owned() }.into()
}

pub(super) fn add_ban(db: &impl Db, ban: &NewBan, now: Timestamp) -> Result<i64, Fault> {
    if !db.exists(sql::SITE_EXISTS, [&ban.site])? {
        return Err(no_site(&ban.site));
    }
    if let Some(request) = &ban.request
        && !db.exists(sql::REQUEST_EXISTS, [request])?
    {
        return Err(super::apply::no_request(request));
    }
    let data = column::json_text(&ban.failure_data)?;
    let values = values![ban.site, ban.request.as_deref(), ban.reason, data, ban.by, now.0, ban.expires_at.0];
    db.one(sql::ADD_BAN, values, |row| row.get(0))
}

pub(super) fn bans(db: &impl Db, filter: &BanFilter) -> Result<Vec<SiteBan>, Fault> {
    let BanFilter { site, holds_for, only_general, active_at, expired_untold } = filter;
    let mut query = Query::new(sql::SELECT_BANS, vec![]);
    query.push("1 = 1", vec![]);
    super::lists::push_equal(&mut query, "b.site", site.clone());
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
        let over = " AND b.removed_at IS NULL AND b.expiry_told_at IS NULL AND b.expires_at <= ?";
        query.push(over, vec![Box::new(now.0)]);
    }
    query.push(" ORDER BY b.id", vec![]);
    query.run(db, ban_row)
}

fn ban_row(row: &Row<'_>) -> Result<SiteBan, Fault> {
    Ok(SiteBan {
        id: row.get(0)?,
        ban: NewBan {
            site: row.get(1)?,
            request: row.get(2)?,
            reason: row.get(3)?,
            failure_data: column::required_json(row, 4)?,
            by: row.get(5)?,
            expires_at: at(row, 7)?,
        },
        created_at: at(row, 6)?,
        removed_at: column::time(row, 8)?,
        removed_by: row.get(9)?,
        expiry_told_at: column::time(row, 10)?,
    })
}

pub(super) fn remove_ban(db: &impl Db, id: i64, by: &str, now: Timestamp) -> Result<(), Fault> {
    match db.execute(sql::REMOVE_BAN, values![now.0, by, id])? {
        0 => Err(Error::NoSuch { what: "ban".into(), id }.into()),
        _ => Ok(()),
    }
}

pub(super) fn mark_expiry_told(db: &impl Db, ids: &[i64], now: Timestamp) -> Result<(), Fault> {
    ids.iter().try_for_each(|id| db.execute(sql::MARK_EXPIRY_TOLD, [now.0, *id]).map(|_| ()))
}

pub(super) fn setting(db: &impl Db, name: &str) -> Result<Option<Value>, Fault> {
    db.optional(sql::SETTING, [name], |row| column::required_json(row, 0))
}

pub(super) fn settings(db: &impl Db) -> Result<Vec<SettingRow>, Fault> {
    db.all(sql::SELECT_SETTINGS, values![], |row| {
        Ok(SettingRow {
            name: row.get(0)?,
            value: column::required_json(row, 1)?,
            changed_at: at(row, 2)?,
            changed_by: row.get(3)?,
        })
    })
}

pub(super) fn set_setting(
    db: &impl Db,
    name: &str,
    value: Option<&Value>,
    by: &str,
    now: Timestamp,
) -> Result<(), Fault> {
    match value.map(column::json_text).transpose()? {
        None => db.execute(sql::FORGET_SETTING, [name])?,
        Some(value) => db.execute(sql::SET_SETTING, values![name, value, now.0, by])?,
    };
    Ok(())
}

pub(super) fn add_alert(db: &impl Db, alert: &NewAlert, now: Timestamp) -> Result<i64, Fault> {
    let detail = column::json_text(&alert.detail)?;
    let values = values![alert.kind, alert.request.as_deref(), alert.message, detail, now.0];
    db.one(sql::ADD_ALERT, values, |row| row.get(0))
}

pub(super) fn alerts(db: &impl Db, filter: &AlertFilter) -> Result<Vec<AlertRow>, Fault> {
    let mut query = Query::new(sql::SELECT_ALERTS, vec![]);
    query.push("1 = 1", vec![]);
    super::lists::push_equal(&mut query, "a.request", filter.request.clone());
    super::lists::push_equal(&mut query, "a.kind", filter.kind.clone());
    if filter.only_untold {
        query.push(" AND a.told_at IS NULL", vec![]);
    }
    query.push(" ORDER BY a.id DESC", vec![]);
    query.push_page(0, filter.limit);
    let mut newest_first = query.run(db, alert_row)?;
    newest_first.reverse();
    Ok(newest_first)
}

fn alert_row(row: &Row<'_>) -> Result<AlertRow, Fault> {
    let alert = NewAlert {
        kind: row.get(1)?,
        request: row.get(2)?,
        message: row.get(3)?,
        detail: column::required_json(row, 4)?,
    };
    Ok(AlertRow { id: row.get(0)?, alert, at: at(row, 5)?, told_at: column::time(row, 6)? })
}

pub(super) fn mark_told(db: &impl Db, ids: &[i64], now: Timestamp) -> Result<(), Fault> {
    ids.iter().try_for_each(|id| db.execute(sql::MARK_ALERT_TOLD, [now.0, *id]).map(|_| ()))
}
