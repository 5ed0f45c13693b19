//! Bans beyond single requests: those that become one for all, and those that are over; as production sweeps through them.

use crate::sim::Sim;
use std::collections::BTreeSet;
use windlass_core::requests::bans;
use windlass_core::requests::book::{Backend, NewAlert, NewBan, RunRow, SiteBan};
use windlass_types::Timestamp;

impl Sim {
    /// What follows from all bans together.
    pub(super) fn keep_bans(&mut self) {
        let promoted =
            bans::promote(&self.books.bans, self.open_sites(), &self.decisions.blame.bans, self.now);
        for ban in promoted.bans {
            self.figures.promotions += 1;
            self.tell_of_ban("site_ban_promoted", &ban);
            self.books.ban(ban, self.now);
        }
        let over: Vec<i64> = bans::expired(&self.books.bans, self.now).map(|ban| ban.id).collect();
        for id in over {
            let now = self.now;
            let found = self.books.bans.iter_mut().find(|ban| ban.id == id);
            if let Some(ban) = found.map(|ban| {
                ban.expiry_told_at = Some(now);
                ban.ban.clone()
            }) {
                self.tell_of_ban("site_ban_expired", &ban);
            }
        }
        self.close_banned_sites();
    }

    fn tell_of_ban(&mut self, kind: &str, ban: &NewBan) {
        *self.figures.alerts.entry(kind.to_owned()).or_default() += 1;
        let alert = NewAlert {
            kind: kind.to_owned(),
            request: ban.request.clone(),
            message: format!("{}: {}", ban.site, ban.reason),
            detail: serde_json::Value::Null,
        };
        self.books.alerts.push((self.now, alert));
    }

    /// Those that are not banned for all.
    fn open_sites(&self) -> BTreeSet<String> {
        let is_banned = |name: &str| self.books.bans.iter().any(|ban| is_general(ban, name, self.now));
        let sites = self.land.sites.iter().map(|site| site.name.clone());
        sites.filter(|name| !is_banned(name)).collect()
    }

    /// The engine forgets what is closed to single runs when it is started anew, and is not told when a ban ends.
    fn close_banned_sites(&mut self) {
        let runs: Vec<(String, RunRow)> = self
            .books
            .open()
            .filter_map(|view| Some((view.row.request.request_name.clone(), view.run.clone()?)))
            .filter(|(_, run)| run.status.is_active() && matches!(run.backend, Backend::Engine { .. }))
            .collect();
        for (request, run) in runs {
            let closed = self.closed(&request, &run);
            // The engine always answers.
            let told = self.tell_backend(&run, |workflow| workflow.closed = closed);
            debug_assert!(told.is_ok());
        }
    }
}

fn is_general(ban: &SiteBan, site: &str, now: Timestamp) -> bool {
    ban.ban.site == site && ban.ban.request.is_none() && ban.removed_at.is_none() && ban.ban.expires_at > now
}
