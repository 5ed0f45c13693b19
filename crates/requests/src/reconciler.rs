//! Passes over all active requests: read, decide, commit, and start the effects.
//!
//! One thread owns all states. Nothing that matters is only in memory: views are rows as last read or written,
//! with their version; effects whose results are lost are repeated, because they are still due.

mod decision_turn;
mod effect_delays;
mod run_updates;
mod site_bans;
mod site_sync;

use crate::context::RequestReconcilerContext;
use crate::effects::{EffectKey, EffectOutcome, EffectSubject};
use crate::lifecycle::{PassReport, PassRunner};
use crate::mailbox::{RequestReconcilerWaker, WakeEvents};
use crate::metrics::LifecycleMetrics;
use crate::work_pool::WorkPool;
use effect_delays::EffectDelays;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use windlass_core::requests::RequestView;
use windlass_core::requests::lifecycle::LifecycleEvent;
use windlass_store::StoreError;
use windlass_types::{SystemClock, Timestamp};

/// Consecutive decisions about a request are made within one pass, up to this number.
const MAX_TURNS_PER_PASS: usize = 16;

/// Owns the states of all requests.
#[derive(Debug)]
pub(crate) struct RequestReconciler {
    context: Arc<RequestReconcilerContext>,
    work_pool: WorkPool<EffectKey, Vec<EffectOutcome>>,
    /// By name, as last read or written.
    views: BTreeMap<String, RequestView>,
    /// Events that decisions have not taken yet, or took without a commit.
    pending_events: HashMap<String, Vec<LifecycleEvent>>,
    /// Runs that were queried since their start. The others are queried with or without a notice.
    inspected_runs: HashSet<String>,
    /// When to check a request and its run again.
    next_checks: HashMap<String, Timestamp>,
    effect_delays: EffectDelays,
    /// Failing sites without an alternative: an alert was sent.
    alerted_last_sites: HashSet<String>,
    /// Requests and sites that stay open to their runs although they are banned: an alert was sent.
    alerted_kept_sites: BTreeSet<(String, String)>,
    /// Closed sites as last written for DAGs; `None`: not written since the start.
    closed_sites: Option<BTreeSet<String>>,
    /// Requests whose DAGs still need the new list of sites.
    dags_to_update: BTreeSet<String>,
    /// A site was banned for a request: the consequences for all requests are due.
    has_banned: bool,
    metrics: Arc<Mutex<LifecycleMetrics>>,
    /// A pass failed: its notices are still to be handled.
    must_check_all: bool,
}

/// Effects in progress are waited for, but not those that wait for a silent service.
impl Drop for RequestReconciler {
    fn drop(&mut self) {
        self.context.backends.condor.stop();
    }
}

impl PassRunner for RequestReconciler {
    fn run_pass(&mut self, wake_events: &WakeEvents) -> PassReport {
        let mut report = PassReport::default();
        if let Err(error) = self.try_pass(wake_events, &mut report) {
            self.must_check_all = true;
            report.add_error(None, &error);
        }
        report.under_way = self.work_pool.active_count() as u64;
        let due =
            self.next_checks.values().copied().chain(self.effect_delays.next_due()).chain(report.look_again);
        report.look_again = due.min();
        report
    }
}

impl RequestReconciler {
    pub(crate) fn new(
        reconciler_context: RequestReconcilerContext,
        waker: RequestReconcilerWaker,
        lifecycle_metrics: Arc<Mutex<LifecycleMetrics>>,
    ) -> std::io::Result<Self> {
        let threads = reconciler_context.options.effect_threads.max(1);
        let pool = WorkPool::start_threads(threads, move |key: &EffectKey| waker.wake_request(&key.request))?;
        Ok(Self {
            context: Arc::new(reconciler_context),
            work_pool: pool,
            views: BTreeMap::new(),
            pending_events: HashMap::new(),
            inspected_runs: HashSet::new(),
            next_checks: HashMap::new(),
            effect_delays: EffectDelays::default(),
            alerted_last_sites: HashSet::new(),
            alerted_kept_sites: BTreeSet::new(),
            closed_sites: None,
            dags_to_update: BTreeSet::new(),
            has_banned: false,
            metrics: lifecycle_metrics,
            must_check_all: true,
        })
    }

    fn try_pass(&mut self, wake_events: &WakeEvents, report: &mut PassReport) -> Result<(), StoreError> {
        let now = SystemClock.now();
        let all = wake_events.all || self.must_check_all;
        self.take_outcomes(report);
        self.refresh_views()?;
        if all {
            self.update_sites()?;
            self.update_bans()?;
            self.send_alerts();
            self.drop_unwatched_runs();
        }
        let mut due: Vec<String> = self.views.keys().cloned().collect();
        report.evaluated = due.len() as u64;
        self.inspect_runs(all, wake_events, now);
        for _ in 0..MAX_TURNS_PER_PASS {
            due = self.run_turn(&due, report);
            if due.is_empty() {
                break;
            }
            self.inspect_new_runs(&due);
        }
        if !due.is_empty() {
            report.look_again = Some(now);
        }
        if std::mem::take(&mut self.has_banned) {
            self.update_bans()?;
        }
        self.update_metrics(all)?;
        self.must_check_all = false;
        Ok(())
    }

    /// The results of effects since the last pass.
    fn take_outcomes(&mut self, report: &mut PassReport) {
        let (now, usual) = (SystemClock.now(), self.context.options.decision_settings.retry_after);
        for done in self.work_pool.take_finished() {
            let request = done.key.request;
            let Some(outcomes) = done.outcome else {
                // The effect is still due; the log shows the panic.
                self.effect_delays.delay_request(&request, now.plus(usual));
                report.add_error(Some(&request), &"an action for it failed; see the log");
                continue;
            };
            if done.key.subject == EffectSubject::Alerts {
                if !outcomes.is_empty() {
                    self.send_alerts();
                }
                continue;
            }
            for EffectOutcome { tag, events, min_delay: pause } in outcomes {
                if let Some(error) = events.iter().find_map(decision_turn::event_error) {
                    report.add_error(Some(&request), &error);
                }
                self.effect_delays.delay_effect(&request, &tag, now.plus(pause));
                self.pending_events.entry(request.clone()).or_default().extend(events);
            }
        }
        self.effect_delays.on_time(now);
    }

    /// Reads changes of others: a few statements, for any number of requests.
    fn refresh_views(&mut self) -> Result<(), StoreError> {
        let mut known = BTreeMap::new();
        // Another request may have added steps to these, which does not change their versions.
        let mut unread = self.context.database.requests_with_pending_steps()?;
        for (name, version) in self.context.database.open_requests()? {
            match self.views.remove(&name).filter(|view| view.row.version == version) {
                Some(view) => drop(known.insert(name, view)),
                None => unread.push(name),
            }
        }
        for mut view in self.context.database.load_request_views(&unread)? {
            if view.row.status.is_terminal() {
                // Only its outputs are left.
                view.run = None;
            }
            known.insert(view.row.request.request_name.clone(), view);
        }
        self.views = known;
        self.pending_events.retain(|name, _| self.views.contains_key(name));
        self.next_checks.retain(|name, _| self.views.contains_key(name));
        Ok(())
    }

    /// Ended runs are not watched.
    fn drop_unwatched_runs(&self) {
        let runs = self.views.values().filter_map(run_updates::active_run);
        let wanted: HashSet<&str> = runs.map(|run| run.uuid.as_str()).collect();
        self.context.backends.condor.retain_watched(|run| wanted.contains(run));
    }

    /// Runs with a notice, or all of them if notices may have been lost.
    fn inspect_runs(&mut self, all: bool, wake_events: &WakeEvents, now: Timestamp) {
        let woken: HashSet<String> =
            self.next_checks.extract_if(|_, at| *at <= now).map(|(request, _)| request).collect();
        let is_due = |name: &String, view: &RequestView| {
            all || woken.contains(name)
                || run_updates::engine_workflow(view)
                    .is_some_and(|workflow| wake_events.workflows.contains(&workflow))
                || view.run.as_ref().is_some_and(|run| wake_events.runs.contains(&run.uuid))
        };
        let due = self.views.iter().filter(|(name, view)| is_due(name, view));
        let due: Vec<String> = due.map(|(name, _)| name.clone()).collect();
        for name in &due {
            self.inspect_run(name);
        }
        let others: Vec<String> = self.views.keys().cloned().collect();
        self.inspect_new_runs(&others);
    }

    /// A notice about a run that was not known here yet had no effect.
    fn inspect_new_runs(&mut self, among: &[String]) {
        let is_new = |name: &&String| {
            let run = self.views.get(*name).and_then(|view| view.run.as_ref());
            run.is_some_and(|run| !self.inspected_runs.contains(&run.uuid))
        };
        let new: Vec<String> = among.iter().filter(is_new).cloned().collect();
        for name in &new {
            self.inspect_run(name);
        }
    }

    fn inspect_run(&mut self, name: &str) {
        let Some(view) = self.views.get(name) else { return };
        if let (Some(run), Some(event)) = (&view.run, run_updates::load_run_report(&self.context, view)) {
            self.inspected_runs.insert(run.uuid.clone());
            self.pending_events.entry(name.to_owned()).or_default().push(event);
        }
    }
}
