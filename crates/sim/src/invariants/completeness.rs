//! Requests must not stall, and in the end all requested output must exist.

use crate::memory_store::is_open;
use crate::simulation::RequestSimulation;
use std::time::Duration;
use windlass_core::requests::RequestView;
use windlass_core::requests::rows::RequestFileState;
use windlass_types::Timestamp;
use windlass_types::requests::{RequestStatus, RequestUnitStatus};

/// Maximum time in a state that depends only on the server: the timeouts of production plus the time for
/// recovery.
const MAX_IDLE_TIME: Duration = Duration::from_hours(6);

impl RequestSimulation {
    /// Reports requests that should have progressed long ago.
    pub(crate) fn check_no_request_stalled(&mut self) {
        let forgotten: Vec<(String, String)> = self
            .store
            .open_requests()
            .filter_map(|view| Some((view.row.request.request_name.clone(), why_stalled(view, self.now)?)))
            .collect();
        for (name, what) in forgotten {
            self.record_violation(&name, what);
        }
    }

    /// Checks the state after the last event.
    pub(crate) fn check_final_state(&mut self) {
        let names: Vec<String> = self.store.views.keys().cloned().collect();
        for name in names {
            if let Err(what) = self.check_final_request(&name) {
                self.record_violation(&name, what);
            }
        }
        let still = self.backends.workflows.iter().find(|workflow| workflow.active_run.is_some());
        if let Some((request, run)) = still.map(|one| (one.request.clone(), one.active_run.clone())) {
            self.record_violation(&request, format!("{run:?} is still running"));
        }
    }

    fn check_final_request(&self, name: &str) -> Result<(), String> {
        let view = &self.store.views[name];
        if view.row.status.is_terminal() && is_open(view) {
            return Err(format!(
                "it is {}, but output steps are unfinished: {:?}",
                view.row.status, view.steps
            ));
        }
        match view.row.status {
            RequestStatus::Completed => self.check_completed(name, view),
            RequestStatus::Failed | RequestStatus::Aborted => Ok(()),
            status => Err(format!(
                "it is {status} since {} ({}), but the simulation has ended",
                view.row.since,
                view.row.reason.as_deref().unwrap_or("no reason given"),
            )),
        }
    }

    fn check_completed(&self, name: &str, view: &RequestView) -> Result<(), String> {
        self.check_all_registered(name, view)?;
        let process = view.process.as_ref().ok_or("it is completed without a process")?;
        let coverage = self.invariants.coverage.get(name);
        let events = coverage.map_or(0, |coverage| coverage.events);
        if events != process.events_produced {
            return Err(format!("{events} events are registered, but {} counted", process.events_produced));
        }
        if let Some(generation) = view.row.request.generation {
            let is_enough = events >= generation.events;
            let told = || format!("{events} of {} events were produced", generation.events);
            return is_enough.then_some(()).ok_or_else(told);
        }
        self.request_facts[name].data.files.iter().try_for_each(|file| {
            let done = coverage.map_or(0, |coverage| coverage.covered_events(&file.lfn));
            let row = self.store.files.get(name).and_then(|rows| rows.get(&file.lfn));
            let is_excluded = row.is_some_and(|row| row.state == RequestFileState::Excluded);
            match (done == file.events, is_excluded) {
                (true, false) => Ok(()),
                (_, true) if self.may_exclude(name, &file.lfn) => Ok(()),
                (_, true) => Err(format!("{} is excluded, but has no flaw", file.lfn)),
                (false, false) => {
                    Err(format!("{done} of {} events of {} were processed", file.events, file.lfn))
                }
            }
        })
    }

    /// Whether a file is bad, or was excluded by a person.
    fn may_exclude(&self, request: &str, lfn: &str) -> bool {
        self.request_facts[request].data.defects.contains_key(lfn)
            || self.invariants.excluded_files.get(request).is_some_and(|files| files.contains(lfn))
    }

    /// Checks that exactly the completed units are registered.
    fn check_all_registered(&self, name: &str, view: &RequestView) -> Result<(), String> {
        let of_it = self.backends.workflows.iter().filter(|workflow| workflow.request == name);
        let completed: u32 = of_it.map(|workflow| workflow.count(RequestUnitStatus::Completed)).sum();
        let first = view.row.request.output_datasets.first();
        let blocks = view.blocks.iter().filter(|block| Some(&block.dataset) == first);
        let registered: u32 = blocks.map(|block| block.units_completed).sum();
        if completed == registered {
            Ok(())
        } else {
            Err(format!("{completed} work units were completed, but {registered} registered"))
        }
    }
}

fn why_stalled(view: &RequestView, now: Timestamp) -> Option<String> {
    let for_so_long = now.since(view.row.since);
    let is_ours = matches!(
        view.row.status,
        RequestStatus::Submitted
            | RequestStatus::Planning
            | RequestStatus::Resubmitting
            | RequestStatus::Partial
    );
    let is_command_old =
        view.row.wanted.as_ref().is_some_and(|wanted| now.since(wanted.at) > 4 * MAX_IDLE_TIME);
    // All it waits for existed at the last change at the latest.
    let is_over = view.run.as_ref().is_some_and(|run| run.status.is_over()) && view.steps.is_empty();
    let is_idle = view.row.status == RequestStatus::Active && is_over;
    match () {
        () if is_ours && for_so_long > MAX_IDLE_TIME => {
            Some(format!("it has been {} for too long", view.row.status))
        }
        () if is_command_old => Some(format!("its command is not processed: {:?}", view.row.wanted)),
        () if is_idle && now.since(view.row.updated_at) > MAX_IDLE_TIME => {
            Some("its run is over and its output steps are done, but nothing follows".to_owned())
        }
        () => None,
    }
}
