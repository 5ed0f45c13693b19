//! Bans of sites beyond single requests: those that become one for all, and those that are over. People are told of each.

use super::{Reconciler, run_news};
use crate::outline::Outline;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::Path;
use windlass_core::requests::View;
use windlass_core::requests::bans;
use windlass_core::requests::book::{Backend, NewAlert, NewBan, SiteBan};
use windlass_core::requests::lifecycle::{News, may_ban};
use windlass_store::Error;
use windlass_store::model::BanFilter;
use windlass_types::{Clock, Timestamp};

impl Reconciler {
    /// What follows from all bans together.
    pub(super) fn keep_bans(&mut self) -> Result<(), Error> {
        let now = Clock.now();
        let active = self.active_bans(now)?;
        let told = self.promote(&active, now)? | self.tell_expired(now)? | self.close_banned(&active, now)?;
        if told {
            self.tell_alerts();
        }
        Ok(())
    }

    fn active_bans(&self, now: Timestamp) -> Result<Vec<SiteBan>, Error> {
        self.world.books.bans(&BanFilter { active_at: Some(now), ..BanFilter::default() })
    }

    /// Whether people are told something.
    fn promote(&mut self, active: &[SiteBan], now: Timestamp) -> Result<bool, Error> {
        let policy = self.world.options.decisions.blame.bans.clone();
        if !policy.enabled || !active.iter().any(|ban| ban.ban.request.is_some()) {
            return Ok(false);
        }
        // Those that somebody has removed matter as well.
        let general = BanFilter { only_general: true, ..BanFilter::default() };
        let mut all = self.world.books.bans(&general)?;
        all.extend(active.iter().filter(|ban| ban.ban.request.is_some()).cloned());
        let open = bans::open_sites(&self.world.books.sites()?, active);
        let promoted = bans::promote(&all, open, &policy, now);
        let mut has_told = !promoted.bans.is_empty();
        for ban in promoted.bans {
            self.world.books.add_ban(&ban, now)?;
            self.world.books.add_alert(&told_of(&ban, false), now)?;
        }
        for ban in promoted.refused {
            if self.last_sites.insert(ban.site.clone()) {
                self.world.books.add_alert(&told_of(&ban, true), now)?;
                has_told = true;
            }
        }
        Ok(has_told)
    }

    fn tell_expired(&mut self, now: Timestamp) -> Result<bool, Error> {
        let untold =
            self.world.books.bans(&BanFilter { expired_untold: Some(now), ..BanFilter::default() })?;
        let mut over = Vec::new();
        for ban in bans::expired(&untold, now) {
            let of = ban.ban.request.as_ref().map_or("all requests", String::as_str);
            self.world.books.add_alert(
                &NewAlert {
                    kind: "site_ban_expired".into(),
                    request: ban.ban.request.clone(),
                    message: format!("the ban of {} for {of} is over ({})", ban.ban.site, ban.ban.reason),
                    detail: json!({ "site": ban.ban.site, "ban": ban.id }),
                },
                now,
            )?;
            over.push(ban.id);
        }
        if over.is_empty() {
            return Ok(false);
        }
        self.world.books.mark_expiry_told(&over, now)?;
        // Whatever had no place to go may have one now.
        self.pauses.forget();
        Ok(true)
    }

    /// The engine forgets what is closed to single runs when it is started anew, and is not told when a ban ends. A ban for
    /// all holds for runs that were begun after it. One that would leave work of a run no site does not hold for it, and
    /// people are told, whatever its backend. Whether they are.
    fn close_banned(&mut self, active: &[SiteBan], now: Timestamp) -> Result<bool, Error> {
        let mut kept = BTreeSet::new();
        for (name, view) in &self.known {
            let Some(run) = run_news::under_way(view) else { continue };
            let holds = |ban: &&SiteBan| match &ban.ban.request {
                Some(request) => request == name,
                None => run.submitted_at.is_some_and(|at| ban.created_at <= at),
            };
            let banned: BTreeSet<String> =
                active.iter().filter(holds).map(|ban| ban.ban.site.clone()).collect();
            let closed = if banned.is_empty() {
                BTreeSet::new()
            } else {
                bans::bearable(&banned, &self.world.open_to(run)?)
            };
            kept.extend(banned.difference(&closed).map(|site| (name.clone(), site.clone())));
            if let Backend::Engine { workflow: Some(workflow), .. } = run.backend {
                self.world.backends.engine.service.close_sites_for(workflow, closed);
            }
        }
        // What was told of a run that is over is forgotten with it.
        self.kept_sites.retain(|known| kept.contains(known));
        let mut has_told = false;
        for (request, site) in kept {
            if !self.kept_sites.contains(&(request.clone(), site.clone())) {
                self.world.books.add_alert(&kept_open(&request, &site), now)?;
                self.kept_sites.insert((request, site));
                has_told = true;
            }
        }
        Ok(has_told)
    }

    /// Sets of sites that units of its run may go to, if that may matter to what is decided now.
    pub(super) fn places_of(
        &self,
        name: &str,
        view: &View,
        now: Timestamp,
    ) -> Result<Vec<BTreeSet<String>>, Error> {
        let blame = &self.world.options.decisions.blame;
        let matters =
            |news: &News| matches!(news, News::Run(news) if may_ban(&view.failures, news, blame, now));
        let (Some(run), true) = (&view.run, self.news.get(name).is_some_and(|news| news.iter().any(matters)))
        else {
            return Ok(Vec::new());
        };
        let open: BTreeSet<String> = self.world.places(name)?.usable.into_keys().collect();
        // Without its outline it is only known where it might have gone.
        let sets = Outline::read(Path::new(&run.submit_dir)).map_or_else(
            |_| vec![open.clone()],
            |outline| outline.sites.into_iter().map(BTreeSet::from_iter).collect(),
        );
        Ok(sets.into_iter().map(|set| set.intersection(&open).cloned().collect()).collect())
    }
}

fn kept_open(request: &str, site: &str) -> NewAlert {
    let message = format!(
        "{site} is banned, and open to the run of {request} all the same: some of its work has no other site to go to"
    );
    NewAlert {
        kind: "ban_refused".into(),
        request: Some(request.to_owned()),
        message,
        detail: json!({ "site": site }),
    }
}

fn told_of(ban: &NewBan, is_last: bool) -> NewAlert {
    let (kind, message) = if is_last {
        let message =
            format!("{} is not banned for all, although {}: no other site is left", ban.site, ban.reason);
        ("ban_refused", message)
    } else {
        let message = format!("{} is banned for all until {}: {}", ban.site, ban.expires_at, ban.reason);
        ("site_ban_promoted", message)
    };
    NewAlert { kind: kind.into(), request: None, message, detail: json!({ "site": ban.site }) }
}
