//! Sites and their bans, settings, alerts.

use super::requests::sample_request;
use crate::kit::{NOW, claim, commit, create, new_worker, start};
use serde_json::json;
use std::collections::BTreeMap;
use windlass_core::requests::rows::{NewAlert, NewBan, SiteRow};
use windlass_store::model::{AlertFilter, NewWorker, SiteBanFilter, SiteUsage};
use windlass_store::{StoreDatabase, StoreError};
use windlass_types::Timestamp;
use windlass_types::requests::{RequestStatus, SiteStatus};

fn site(name: &str) -> SiteRow {
    SiteRow {
        name: name.into(),
        status: SiteStatus::Enabled,
        drain_until: None,
        total_slots: Some(1 << 40),
        running_slots: 1,
        pending_slots: 2,
        thresholds: [("max".to_owned(), 7)].into(),
        schedd_name: None,
        collector_host: Some("host".into()),
        storage_element: None,
        storage_path: Some("/store".into()),
        updated_at: NOW,
    }
}

fn later(seconds: i64) -> Timestamp {
    Timestamp(NOW.0 + seconds * 1_000_000)
}

pub(crate) fn site_is_stored_and_drained(store: &dyn StoreDatabase) {
    store.put_site(&site("T2_B")).unwrap();
    store.put_site(&site("T1_A")).unwrap();
    let changed = SiteRow { total_slots: None, storage_path: None, ..site("T2_B") };
    store.put_site(&changed).unwrap();
    assert_eq!(store.sites().unwrap(), [site("T1_A"), changed.clone()]);
    store.set_site_status("T2_B", SiteStatus::Draining, Some(later(60)), later(1)).unwrap();
    let draining = SiteRow {
        status: SiteStatus::Draining,
        drain_until: Some(later(60)),
        updated_at: later(1),
        ..changed
    };
    assert_eq!(store.site("T2_B").unwrap().as_ref(), Some(&draining));
    assert_eq!(store.site("T3").unwrap(), None);
    let missing = store.set_site_status("T3", SiteStatus::Disabled, None, NOW).unwrap_err();
    assert!(matches!(&missing, StoreError::NoSuchName { name, .. } if name == "T3"), "{missing}");
    store.record_site_slots("T2_B", 7, later(9)).unwrap();
    store.record_site_slots("T3_C", 1, later(9)).unwrap();
    let noted = SiteRow { total_slots: Some(7), updated_at: later(9), ..draining };
    assert_eq!(store.site("T2_B").unwrap(), Some(noted), "nothing else changes");
    let new = store.site("T3_C").unwrap().unwrap();
    assert_eq!((new.total_slots, new.status, new.storage_path), (Some(1), SiteStatus::Enabled, None));
}

pub(crate) fn jobs_are_counted_at_the_sites_of_their_workers(store: &dyn StoreDatabase) {
    let (workflow, jobs) = create(store, 4);
    assert_eq!(store.site_usage().unwrap(), BTreeMap::new());
    let at = |site: Option<&str>| NewWorker { site: site.map(str::to_owned), ..new_worker(workflow) };
    let [here, nowhere] = [Some("A"), None].map(|site| store.add_worker(&at(site), NOW).unwrap());
    let claims = vec![claim(jobs[0], 1, here), claim(jobs[1], 1, here), claim(jobs[2], 1, nowhere)];
    commit(store, workflow, claims).unwrap();
    commit(store, workflow, vec![start(jobs[1], 1, here)]).unwrap();
    let usage = SiteUsage { running: 1, pending: 1 };
    assert_eq!(store.site_usage().unwrap(), BTreeMap::from([("A".to_owned(), usage)]));
}

pub(crate) fn bans_hold_until_they_end_or_are_removed(store: &dyn StoreDatabase) {
    store.put_site(&site("A")).unwrap();
    store.add_request(&sample_request("r"), RequestStatus::New, "ada", NOW).unwrap();
    let ban = |request: Option<&str>, seconds| NewBan {
        site: "A".into(),
        request: request.map(str::to_owned),
        reason: "fails".into(),
        failure_data: json!({ "exit": 65 }),
        by: "lifecycle".into(),
        expires_at: later(seconds),
    };
    let general = store.add_ban(&ban(None, 10), NOW).unwrap();
    let own = store.add_ban(&ban(Some("r"), 20), NOW).unwrap();
    let ids = |filter: SiteBanFilter| -> Vec<i64> {
        store.bans(&filter).unwrap().into_iter().map(|ban| ban.id).collect()
    };
    let active = |seconds| SiteBanFilter { active_at: Some(later(seconds)), ..SiteBanFilter::default() };
    assert_eq!(ids(active(9)), [general, own]);
    assert_eq!(ids(active(10)), [own]);
    assert_eq!(ids(SiteBanFilter { applies_to: Some("other".into()), ..active(1) }), [general]);
    assert_eq!(ids(SiteBanFilter { applies_to: Some("r".into()), ..active(1) }), [general, own]);
    assert_eq!(ids(SiteBanFilter { only_general: true, ..active(1) }), [general]);
    assert_eq!(ids(SiteBanFilter { site: Some("B".into()), ..active(1) }), [0; 0]);
    store.remove_ban(own, "ada", later(5)).unwrap();
    store.remove_ban(own, "eve", later(6)).unwrap();
    assert_eq!(ids(active(9)), [general]);
    let all = store.bans(&SiteBanFilter::default()).unwrap();
    assert_eq!((all[1].removed_at, all[1].removed_by.as_deref()), (Some(later(5)), Some("ada")));
    assert_eq!(all[1].ban, ban(Some("r"), 20));
    assert!(store.remove_ban(own + 1, "ada", NOW).unwrap_err().is_missing());
    assert!(store.add_ban(&NewBan { site: "X".into(), ..ban(None, 1) }, NOW).unwrap_err().is_missing());
    assert!(store.add_ban(&ban(Some("x"), 1), NOW).unwrap_err().is_missing());
}

pub(crate) fn last_value_of_a_setting_wins(store: &dyn StoreDatabase) {
    assert_eq!(store.setting("admission.limit").unwrap(), None);
    store.set_setting("admission.limit", Some(&json!(300)), "ada", NOW).unwrap();
    store.set_setting("admission.limit", Some(&json!({ "n": 5 })), "eve", later(1)).unwrap();
    assert_eq!(store.setting("admission.limit").unwrap(), Some(json!({ "n": 5 })));
    let settings = store.settings().unwrap();
    assert_eq!(
        (settings.len(), settings[0].changed_by.as_str(), settings[0].changed_at),
        (1, "eve", later(1))
    );
    store.set_setting("admission.limit", None, "ada", NOW).unwrap();
    assert_eq!(store.settings().unwrap(), []);
}

pub(crate) fn alert_is_pending_until_notified(store: &dyn StoreDatabase) {
    let alert = |kind: &str, request: Option<&str>| NewAlert {
        kind: kind.into(),
        request: request.map(str::to_owned),
        message: "look".into(),
        detail: json!({ "n": 1 }),
    };
    let ids: Vec<i64> = [alert("a", None), alert("b", Some("r")), alert("a", Some("r"))]
        .iter()
        .map(|alert| store.add_alert(alert, NOW).unwrap())
        .collect();
    let listed = |filter: AlertFilter| -> Vec<i64> {
        store.alerts(&filter).unwrap().into_iter().map(|alert| alert.id).collect()
    };
    let all = AlertFilter::default;
    assert_eq!(listed(all()), ids);
    assert_eq!(listed(AlertFilter { limit: Some(2), ..all() }), ids[1..], "the newest");
    assert_eq!(listed(AlertFilter { kind: Some("a".into()), request: Some("r".into()), ..all() }), ids[2..]);
    assert_eq!(store.request_counts().unwrap().alerts_unnotified, 3);
    store.mark_alerts_notified(&ids[..2], later(1)).unwrap();
    store.mark_alerts_notified(&ids[..1], later(2)).unwrap();
    assert_eq!(listed(AlertFilter { only_unnotified: true, ..all() }), ids[2..]);
    let told = &store.alerts(&all()).unwrap()[0];
    assert_eq!((told.told_at, &told.alert), (Some(later(1)), &alert("a", None)));
}
