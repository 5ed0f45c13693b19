//! Sites, kept in step with the workers that are there; and the figures.

use super::{Reconciler, run_news};
use std::collections::BTreeMap;
use std::sync::PoisonError;
use windlass_core::requests::book::SiteRow;
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
            match known.iter().find(|row| row.name == *name) {
                Some(row) if row.total_slots == Some(total) => {}
                Some(row) => {
                    has_more |= row.total_slots.is_some_and(|before| before < total);
                    let row = SiteRow { total_slots: Some(total), updated_at: now, ..row.clone() };
                    self.world.books.put_site(&row)?;
                }
                None => {
                    has_more = true;
                    self.world.books.put_site(&new_site(name, total, now))?;
                }
            }
        }
        for row in known {
            let is_over = row.drain_until.is_some_and(|until| until <= now);
            if row.status == SiteStatus::Draining && is_over {
                self.world.books.set_site_status(&row.name, SiteStatus::Enabled, None, now)?;
                has_more = true;
            }
        }
        if has_more {
            // Whatever had no place to go may have one now.
            self.pauses.forget();
        }
        Ok(())
    }

    /// For those who watch. What takes a look into the books is counted with every look at everything.
    pub(super) fn count(&self, all: bool) -> Result<(), Error> {
        let counts = all.then(|| self.world.books.request_counts()).transpose()?;
        let progress = self.known.values().filter(|view| run_news::handed(view).is_some());
        let progress = progress.filter_map(|view| view.run.as_ref()).map(|run| {
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

fn new_site(name: &str, total: u64, now: windlass_types::Timestamp) -> SiteRow {
    SiteRow {
        name: name.to_owned(),
        status: SiteStatus::Enabled,
        drain_until: None,
        total_slots: Some(total),
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
