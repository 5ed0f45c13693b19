//! Sites, kept in step with the workers that are there; and the figures.

use super::{Reconciler, run_news};
use crate::effects::EffectKey;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use windlass_core::requests::book::Backend;
use windlass_core::requests::lifecycle::Effect;
use windlass_store::Error;
use windlass_types::Clock;
use windlass_types::requests::{RequestStatus, SiteStatus};

impl Reconciler {
    /// A worker's site is a site; and a drain that was to last until now is over.
    pub(super) fn keep_sites(&mut self) -> Result<(), Error> {
        let mut slots: BTreeMap<String, u64> = BTreeMap::new();
        for worker in self.world.books.active_workers(None)? {
            if let Some(site) = worker.worker.site {
                *slots.entry(site).or_default() += worker.worker.capacity.slots() as u64;
            }
        }
        let known = self.world.books.sites()?;
        let now = Clock.now();
        let mut has_more = false;
        for (name, &total) in &slots {
            let before = known.iter().find(|row| row.name == *name).map(|row| row.total_slots);
            if before != Some(Some(total)) {
                has_more |= before.is_none_or(|before| before.is_none_or(|before| before < total));
                self.world.books.note_slots(name, total, now)?;
            }
        }
        for row in known {
            let is_over = row.drain_until.is_some_and(|until| until <= now);
            if row.status == SiteStatus::Draining && is_over {
                self.world.books.set_site_status(&row.name, SiteStatus::Enabled, None, now)?;
                has_more = true;
            }
        }
        self.close_sites()?;
        if has_more {
            // Whatever had no place to go may have one now.
            self.pauses.forget();
        }
        Ok(())
    }

    /// Units that were planned before a site was closed do not begin there either; those that have begun go on.
    fn close_sites(&mut self) -> Result<(), Error> {
        let sites = self.world.books.sites()?.into_iter();
        let closed = sites.filter(|row| row.status != SiteStatus::Enabled).map(|row| row.name);
        let closed: BTreeSet<String> = closed.collect();
        self.world.backends.engine.service.close_sites(closed.clone());
        if self.closed_sites.as_ref() != Some(&closed) {
            self.closed_sites = Some(closed);
            self.dags_to_tell = self.known.keys().cloned().collect();
        }
        self.close_sites_to_dags();
        Ok(())
    }

    /// DAGs read from a file at which sites their work units may not land. After a start of the server all of these files
    /// are written: sites may have changed meanwhile. A run that something else is done about is told in a later pass.
    fn close_sites_to_dags(&mut self) {
        let is_told = |name: &String| {
            let run = self.known.get(name).and_then(run_news::under_way);
            let Some(run) = run.filter(|run| matches!(run.backend, Backend::Htcondor { .. })) else {
                return true;
            };
            let avoid = Effect::Avoid { run: run.uuid.clone() };
            self.begin(EffectKey::of(name, &avoid), vec![avoid])
        };
        let left = self.dags_to_tell.iter().filter(|name| !is_told(name)).cloned().collect();
        self.dags_to_tell = left;
    }

    /// For those who watch. What takes a look into the books is counted with every look at everything.
    pub(super) fn count(&self, all: bool) -> Result<(), Error> {
        let counts = all.then(|| self.world.books.request_counts()).transpose()?;
        let progress = self.known.values().filter_map(run_news::under_way).map(|run| {
            let done = f64::from(run.units_completed) / f64::from(run.totals.units.max(1));
            (run.uuid.clone(), done)
        });
        let queued = self.known.values().filter(|view| view.row.status == RequestStatus::Queued).count();
        let mut figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
        figures.progress = progress.collect();
        figures.queue_depth = queued as u64;
        if let Some(counts) = counts {
            figures.requests = counts.requests;
            figures.blocks = counts.blocks;
        }
        Ok(())
    }
}
