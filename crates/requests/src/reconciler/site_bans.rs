//! Bans of sites beyond single requests: bans that are extended to all requests, and expired ones. An alert is
//! sent for each.

use super::{RequestReconciler, run_updates};
use crate::planned_run_units::PlannedRunUnits;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::Path;
use windlass_core::requests::RequestView;
use windlass_core::requests::bans;
use windlass_core::requests::lifecycle::{LifecycleEvent, may_ban_sites};
use windlass_core::requests::rows::{BackendRunRef, NewAlert, NewBan, SiteBan};
use windlass_store::StoreError;
use windlass_store::model::SiteBanFilter;
use windlass_types::{SystemClock, Timestamp};

impl RequestReconciler {
    /// The consequences of all bans together.
    pub(super) fn update_bans(&mut self) -> Result<(), StoreError> {
        let now = SystemClock.now();
        let active = self.active_bans(now)?;
        let alerts = self.promote_bans(&active, now)?
            | self.alert_expired_bans(now)?
            | self.close_banned_sites(&active, now)?;
        if alerts {
            self.send_alerts();
        }
        Ok(())
    }

    fn active_bans(&self, now: Timestamp) -> Result<Vec<SiteBan>, StoreError> {
        self.context.database.bans(&SiteBanFilter { active_at: Some(now), ..SiteBanFilter::default() })
    }

    /// Whether alerts were sent.
    fn promote_bans(&mut self, active: &[SiteBan], now: Timestamp) -> Result<bool, StoreError> {
        let policy = self.context.options.decision_settings.failure_response.bans.clone();
        if !policy.enabled || !active.iter().any(|ban| ban.ban.request.is_some()) {
            return Ok(false);
        }
        // Removed bans matter as well.
        let general = SiteBanFilter { only_general: true, ..SiteBanFilter::default() };
        let mut all = self.context.database.bans(&general)?;
        all.extend(active.iter().filter(|ban| ban.ban.request.is_some()).cloned());
        let open = bans::open_sites(&self.context.database.sites()?, active);
        let promoted = bans::decide_promotions(&all, open, &policy, now);
        let mut has_told = !promoted.bans.is_empty();
        for ban in promoted.bans {
            self.context.database.add_ban(&ban, now)?;
            self.context.database.add_alert(&ban_alert(&ban, false), now)?;
        }
        for ban in promoted.refused {
            if self.alerted_last_sites.insert(ban.site.clone()) {
                self.context.database.add_alert(&ban_alert(&ban, true), now)?;
                has_told = true;
            }
        }
        Ok(has_told)
    }

    fn alert_expired_bans(&mut self, now: Timestamp) -> Result<bool, StoreError> {
        let unannounced = self
            .context
            .database
            .bans(&SiteBanFilter { expired_unnotified: Some(now), ..SiteBanFilter::default() })?;
        let mut over = Vec::new();
        for ban in bans::expired_bans(&unannounced, now) {
            let of = ban.ban.request.as_ref().map_or("all requests", String::as_str);
            self.context.database.add_alert(
                &NewAlert {
                    kind: "site_ban_expired".into(),
                    request: ban.ban.request.clone(),
                    message: format!("the ban of {} for {of} has expired ({})", ban.ban.site, ban.ban.reason),
                    detail: json!({ "site": ban.ban.site, "ban": ban.id }),
                },
                now,
            )?;
            over.push(ban.id);
        }
        if over.is_empty() {
            return Ok(false);
        }
        self.context.database.mark_expiry_notified(&over, now)?;
        // Waiting work may have a site now.
        self.effect_delays.clear_all();
        Ok(true)
    }

    /// The engine forgets the sites that are closed to single runs when it restarts, and gets no notice when a
    /// ban expires. A ban for all requests applies to runs that start after it. A ban that would leave work of a
    /// run without a site does not apply to it, and an alert is sent, on any backend. Returns whether one was
    /// sent.
    fn close_banned_sites(&mut self, active: &[SiteBan], now: Timestamp) -> Result<bool, StoreError> {
        let mut kept = BTreeSet::new();
        for (name, view) in &self.views {
            let Some(run) = run_updates::active_run(view) else { continue };
            let holds = |ban: &&SiteBan| match &ban.ban.request {
                Some(request) => request == name,
                None => run.submitted_at.is_some_and(|at| ban.created_at <= at),
            };
            let banned: BTreeSet<String> =
                active.iter().filter(holds).map(|ban| ban.ban.site.clone()).collect();
            let closed = if banned.is_empty() {
                BTreeSet::new()
            } else {
                bans::dispensable_sites(&banned, &self.context.open_site_sets(run)?)
            };
            kept.extend(banned.difference(&closed).map(|site| (name.clone(), site.clone())));
            if let BackendRunRef::Engine { workflow: Some(workflow), .. } = run.backend {
                self.context.backends.engine.service.set_closed_sites_for(workflow, closed);
            }
        }
        // Alerts about an ended run are forgotten with it.
        self.alerted_kept_sites.retain(|known| kept.contains(known));
        let mut has_told = false;
        for (request, site) in kept {
            if !self.alerted_kept_sites.contains(&(request.clone(), site.clone())) {
                self.context.database.add_alert(&kept_open_alert(&request, &site), now)?;
                self.alerted_kept_sites.insert((request, site));
                has_told = true;
            }
        }
        Ok(has_told)
    }

    /// The sets of sites for units of its run, if they matter to the current decision.
    pub(super) fn eligible_site_sets(
        &self,
        name: &str,
        view: &RequestView,
        now: Timestamp,
    ) -> Result<Vec<BTreeSet<String>>, StoreError> {
        let blame = &self.context.options.decision_settings.failure_response;
        let matters = |event: &LifecycleEvent| matches!(event, LifecycleEvent::RunReported(event) if may_ban_sites(&view.failures, event, blame, now));
        let (Some(run), true) =
            (&view.run, self.pending_events.get(name).is_some_and(|events| events.iter().any(matters)))
        else {
            return Ok(Vec::new());
        };
        let open: BTreeSet<String> = self.context.usable_sites(name)?.usable.into_keys().collect();
        // Without its outline only the possible sites are known.
        let sets = PlannedRunUnits::read(Path::new(&run.submit_dir)).map_or_else(
            |_| vec![open.clone()],
            |outline| outline.sites.into_iter().map(BTreeSet::from_iter).collect(),
        );
        Ok(sets.into_iter().map(|set| set.intersection(&open).cloned().collect()).collect())
    }
}

fn kept_open_alert(request: &str, site: &str) -> NewAlert {
    let message = format!(
        "{site} is banned, but stays open to the run of {request}: some of its work has no other site"
    );
    NewAlert {
        kind: "ban_refused".into(),
        request: Some(request.to_owned()),
        message,
        detail: json!({ "site": site }),
    }
}

fn ban_alert(ban: &NewBan, is_last: bool) -> NewAlert {
    let (kind, message) = if is_last {
        let message = format!(
            "{} is not banned for all requests, although {}: no other site is left",
            ban.site, ban.reason
        );
        ("ban_refused", message)
    } else {
        let message =
            format!("{} is banned for all requests until {}: {}", ban.site, ban.expires_at, ban.reason);
        ("site_ban_promoted", message)
    };
    NewAlert { kind: kind.into(), request: None, message, detail: json!({ "site": ban.site }) }
}
