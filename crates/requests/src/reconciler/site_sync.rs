//! Keeps sites consistent with the connected workers, and updates the metrics.

use super::{RequestReconciler, run_updates};
use crate::effects::EffectKey;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use windlass_core::requests::lifecycle::LifecycleEffect;
use windlass_core::requests::rows::BackendRunRef;
use windlass_store::StoreError;
use windlass_types::SystemClock;
use windlass_types::requests::{RequestStatus, SiteStatus};

impl RequestReconciler {
    /// The site of a worker becomes a known site; expired drains end.
    pub(super) fn update_sites(&mut self) -> Result<(), StoreError> {
        let mut slots: BTreeMap<String, u64> = BTreeMap::new();
        for worker in self.context.database.active_workers(None)? {
            if let Some(site) = worker.worker.site {
                *slots.entry(site).or_default() += worker.worker.capacity.approximate_slots() as u64;
            }
        }
        let known = self.context.database.sites()?;
        let now = SystemClock.now();
        let mut has_more = false;
        for (name, &total) in &slots {
            let before = known.iter().find(|row| row.name == *name).map(|row| row.total_slots);
            if before != Some(Some(total)) {
                has_more |= before.is_none_or(|before| before.is_none_or(|before| before < total));
                self.context.database.record_site_slots(name, total, now)?;
            }
        }
        for row in known {
            let is_over = row.drain_until.is_some_and(|until| until <= now);
            if row.status == SiteStatus::Draining && is_over {
                self.context.database.set_site_status(&row.name, SiteStatus::Enabled, None, now)?;
                has_more = true;
            }
        }
        self.close_disabled_sites()?;
        if has_more {
            // Waiting work may have a site now.
            self.effect_delays.clear_all();
        }
        Ok(())
    }

    /// Units that were planned before a site was closed do not start there either; started ones continue.
    fn close_disabled_sites(&mut self) -> Result<(), StoreError> {
        let sites = self.context.database.sites()?.into_iter();
        let closed = sites.filter(|row| row.status != SiteStatus::Enabled).map(|row| row.name);
        let closed: BTreeSet<String> = closed.collect();
        self.context.backends.engine.service.set_closed_sites(closed.clone());
        if self.closed_sites.as_ref() != Some(&closed) {
            self.closed_sites = Some(closed);
            self.dags_to_update = self.views.keys().cloned().collect();
        }
        self.close_sites_to_dags();
        Ok(())
    }

    /// DAGs read from a file which sites are closed to their work units. After a start of the server all of these
    /// files are written, because sites may have changed meanwhile. A run with another effect in progress follows
    /// in a later pass.
    fn close_sites_to_dags(&mut self) {
        let is_told = |name: &String| {
            let run = self.views.get(name).and_then(run_updates::active_run);
            let Some(run) = run.filter(|run| matches!(run.backend, BackendRunRef::Htcondor { .. })) else {
                return true;
            };
            let avoid = LifecycleEffect::AvoidSites { run: run.uuid.clone() };
            self.begin_effect(EffectKey::for_effect(name, &avoid), vec![avoid])
        };
        let left = self.dags_to_update.iter().filter(|name| !is_told(name)).cloned().collect();
        self.dags_to_update = left;
    }

    /// For metrics. Values that need a query are updated with every pass over everything.
    pub(super) fn update_metrics(&self, all: bool) -> Result<(), StoreError> {
        let counts = all.then(|| self.context.database.request_counts()).transpose()?;
        let progress = self.views.values().filter_map(run_updates::active_run).map(|run| {
            let done = f64::from(run.units_completed) / f64::from(run.totals.units.max(1));
            (run.uuid.clone(), done)
        });
        let queued = self.views.values().filter(|view| view.row.status == RequestStatus::Queued).count();
        let mut metrics = self.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        metrics.progress = progress.collect();
        metrics.queue_depth = queued as u64;
        if let Some(counts) = counts {
            metrics.requests = counts.requests;
            metrics.blocks = counts.blocks;
        }
        Ok(())
    }
}
