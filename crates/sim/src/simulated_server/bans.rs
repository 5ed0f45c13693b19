//! Bans for all requests: promotes and expires bans, as in production.

use crate::simulation::RequestSimulation;
use std::collections::BTreeSet;
use windlass_core::requests::bans;
use windlass_core::requests::rows::{BackendRunRef, NewAlert, NewBan, RunRow, SiteBan};
use windlass_types::Timestamp;

impl RequestSimulation {
    /// Promotes and expires bans.
    pub(super) fn update_bans(&mut self) {
        let promoted = bans::decide_promotions(
            &self.store.bans,
            self.open_sites(),
            &self.lifecycle_settings.failure_response.bans,
            self.now,
        );
        for ban in promoted.bans {
            self.statistics.promotions += 1;
            self.record_ban("site_ban_promoted", &ban);
            self.store.add_ban(ban, self.now);
        }
        let over: Vec<i64> = bans::expired_bans(&self.store.bans, self.now).map(|ban| ban.id).collect();
        for id in over {
            let now = self.now;
            let found = self.store.bans.iter_mut().find(|ban| ban.id == id);
            if let Some(ban) = found.map(|ban| {
                ban.expiry_told_at = Some(now);
                ban.ban.clone()
            }) {
                self.record_ban("site_ban_expired", &ban);
            }
        }
        self.close_banned_sites();
    }

    fn record_ban(&mut self, kind: &str, ban: &NewBan) {
        *self.statistics.alerts.entry(kind.to_owned()).or_default() += 1;
        let alert = NewAlert {
            kind: kind.to_owned(),
            request: ban.request.clone(),
            message: format!("{}: {}", ban.site, ban.reason),
            detail: serde_json::Value::Null,
        };
        self.store.alerts.push((self.now, alert));
    }

    /// Returns the sites that are not banned for all.
    fn open_sites(&self) -> BTreeSet<String> {
        let is_banned = |name: &str| self.store.bans.iter().any(|ban| is_global_ban(ban, name, self.now));
        let sites = self.grid.sites.iter().map(|site| site.name.clone());
        sites.filter(|name| !is_banned(name)).collect()
    }

    /// Sends the banned sites to the engine again, because it loses them at a restart and is not notified when
    /// a ban ends.
    fn close_banned_sites(&mut self) {
        let runs: Vec<(String, RunRow)> = self
            .store
            .open_requests()
            .filter_map(|view| Some((view.row.request.request_name.clone(), view.run.clone()?)))
            .filter(|(_, run)| run.status.is_active() && matches!(run.backend, BackendRunRef::Engine { .. }))
            .collect();
        for (request, run) in runs {
            let closed = self.closed_sites(&request, &run);
            // The engine always responds.
            let told = self.update_backend_run(&run, |workflow| workflow.closed_sites = closed);
            debug_assert!(told.is_ok());
        }
    }
}

fn is_global_ban(ban: &SiteBan, site: &str, now: Timestamp) -> bool {
    ban.ban.site == site && ban.ban.request.is_none() && ban.removed_at.is_none() && ban.ban.expires_at > now
}
