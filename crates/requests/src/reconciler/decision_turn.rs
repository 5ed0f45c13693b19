//! One turn of a pass: decisions about several requests, committed together, and their effects.

use super::RequestReconciler;
use crate::backend::work_lane;
use crate::effects::{self, EffectKey, EffectOutcome, EffectRows, EffectSubject};
use crate::lifecycle::PassReport;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use uuid::Uuid;
use windlass_core::requests::RequestView;
use windlass_core::requests::admission::{self, AdmissionCandidate};
use windlass_core::requests::change::{RequestChange, RequestCommit};
use windlass_core::requests::lifecycle::{
    LifecycleDecision, LifecycleEffect, LifecycleEvent, LifecycleInputs, decide_request, takes_slot,
};
use windlass_core::requests::rows::BlockRow;
use windlass_core::requests::versions;
use windlass_store::StoreError;
use windlass_store::model::AlertFilter;
use windlass_types::requests::{CleanupPolicy, RequestStatus};
use windlass_types::{SystemClock, Timestamp};

/// A decision about one request.
struct PendingDecision {
    name: String,
    decision: LifecycleDecision,
    commit: Option<RequestCommit>,
}

/// The error of an effect, if there was one.
pub(super) fn event_error(lifecycle_events: &LifecycleEvent) -> Option<String> {
    match lifecycle_events {
        LifecycleEvent::ImportFailed(problem)
        | LifecycleEvent::PlanFailed(problem)
        | LifecycleEvent::SubmitFailed { failure: problem, .. }
        | LifecycleEvent::StopFailed { failure: problem, .. }
        | LifecycleEvent::SettleFailed { failure: problem, .. } => Some(problem.reason.clone()),
        LifecycleEvent::ManifestFailed { reason } => Some(reason.clone()),
        LifecycleEvent::Step { kind, outcome: Err(error), .. } => Some(format!("{}: {error}", kind.name())),
        _ => None,
    }
}

fn admission_candidate(view: &RequestView) -> AdmissionCandidate<'_> {
    let request = &view.row.request;
    AdmissionCandidate {
        name: &request.request_name,
        requestor: &request.requestor,
        urgent: request.urgent,
        priority: request.priority,
        created_at: view.row.created_at,
        queued_since: view.row.since,
    }
}

impl RequestReconciler {
    /// Decides about these requests, commits, and starts effects. Returns those that have changed or must be
    /// read again.
    pub(super) fn run_turn(&mut self, due: &[String], report: &mut PassReport) -> Vec<String> {
        let now = SystemClock.now();
        let admitted = self.admitted_requests(now);
        let mut made = Vec::with_capacity(due.len());
        for name in due {
            match self.decide_request(name, admitted.contains(name), now) {
                Ok(one) => made.extend(one),
                Err(error) => report.add_error(Some(name), &error),
            }
        }
        let commits: Vec<RequestCommit> = made.iter().filter_map(|one| one.commit.clone()).collect();
        let results = match commits.as_slice() {
            [] => Vec::new(),
            commits => self.context.database.apply_requests(commits),
        };
        let mut results = results.into_iter();
        let mut changed = Vec::new();
        for one in made {
            let Some(commit) = &one.commit else {
                self.begin_effects(&one.name, &one.decision, now);
                continue;
            };
            match results.next() {
                Some(Ok(version)) => {
                    self.record_commit(&one.name, commit, version);
                    self.begin_effects(&one.name, &one.decision, now);
                    report.changed += 1;
                    changed.push(one.name);
                }
                Some(Err(error)) => self.on_commit_refused(&one.name, &error, report),
                None => {
                    report.add_error(Some(&one.name), &"the database did not report the result of a commit");
                }
            }
        }
        changed
    }

    /// The order of all waiting requests.
    fn admitted_requests(&self, now: Timestamp) -> HashSet<String> {
        let waiting = self.views.values().filter(|view| view.row.status == RequestStatus::Queued);
        let candidates: Vec<AdmissionCandidate<'_>> = waiting.map(admission_candidate).collect();
        if candidates.is_empty() {
            return HashSet::new();
        }
        let holders: Vec<&str> = self
            .views
            .values()
            .filter(|view| takes_slot(view))
            .map(|view| view.row.request.requestor.as_str())
            .collect();
        let queue = admission::order_queue(&candidates, &holders, &self.context.admission_settings(), now);
        queue.iter().filter(|turn| turn.admitted).map(|turn| turn.name.to_owned()).collect()
    }

    fn decide_request(
        &self,
        name: &str,
        admitted: bool,
        now: Timestamp,
    ) -> Result<Option<PendingDecision>, StoreError> {
        let Some(view) = self.views.get(name) else { return Ok(None) };
        let previous = self.previous_blocks(view)?;
        let places = self.eligible_site_sets(name, view, now)?;
        let uuid = Uuid::new_v4().to_string();
        let situation = LifecycleInputs {
            events: self.pending_events.get(name).map_or(&[], Vec::as_slice),
            admitted,
            previous: &previous,
            unit_sites: &places,
            new_run_uuid: &uuid,
        };
        let settings = &self.context.options.decision_settings;
        // An error in the rules must not block the other requests.
        let decided = catch_unwind(AssertUnwindSafe(|| decide_request(view, &situation, settings, now)));
        let Ok(decision) = decided else {
            tracing::error!(request = name, "deciding about a request failed");
            return Ok(None);
        };
        let commit = decision.to_commit(view, now);
        Ok(Some(PendingDecision { name: name.to_owned(), decision, commit }))
    }

    /// Blocks of the versions that are superseded when this one is completed: of all earlier ones, because those
    /// in between may have failed.
    fn previous_blocks(&self, view: &RequestView) -> Result<Vec<BlockRow>, StoreError> {
        let request = &view.row.request;
        let wanted = view.row.status == RequestStatus::Active
            && request.cleanup_policy == CleanupPolicy::ImmediateCleanup;
        if !wanted {
            return Ok(Vec::new());
        }
        let mut blocks = Vec::new();
        for version in versions::earlier_versions(
            request,
            |name| self.context.database.request(name),
            |row| &row.request,
        )? {
            if let Some(process) = self.context.database.process(&version.request.request_name)? {
                blocks.extend(self.context.database.processing_blocks(&process.uuid)?);
            }
        }
        Ok(blocks)
    }

    /// The decision is on disk.
    fn record_commit(&mut self, name: &str, commit: &RequestCommit, version: i64) {
        self.has_banned |= commit.changes.iter().any(|change| matches!(change, RequestChange::Ban(_)));
        if let Some(view) = self.views.get_mut(name) {
            for change in &commit.changes {
                match change {
                    RequestChange::Status { from, to, reason } => {
                        tracing::info!(request = name, %from, %to, reason, "request changes its status");
                    }
                    change => tracing::trace!(request = name, ?change, "request changes"),
                }
                view.apply_change(change, commit.at);
            }
            view.row.version = version;
            view.row.updated_at = commit.at;
        }
        if let Some(told) = &self.context.options.on_commit {
            told(name);
        }
    }

    /// After a conflicting change the rows are read again, and the events are taken again. Any other error is
    /// internal, or one of the database.
    fn on_commit_refused(&mut self, name: &str, error: &StoreError, report: &mut PassReport) {
        self.views.remove(name);
        let now = SystemClock.now();
        if matches!(error, StoreError::Outdated { .. }) {
            self.next_checks.insert(name.to_owned(), now);
            return;
        }
        tracing::error!(request = name, %error, "a decision about a request was rejected by the database");
        report.add_error(Some(name), error);
        if !error.is_transient() {
            self.pending_events.remove(name);
        }
        let later = now.plus(self.context.options.decision_settings.retry_after);
        self.next_checks.insert(name.to_owned(), later);
    }

    /// Removes the taken events, and starts the effects.
    fn begin_effects(&mut self, name: &str, decision: &LifecycleDecision, now: Timestamp) {
        self.pending_events.remove(name);
        if let Some(at) = decision.next_check {
            let next_check = self.next_checks.entry(name.to_owned()).or_insert(at);
            *next_check = at.min(*next_check);
        }
        if !decision.alerts.is_empty() {
            self.metrics.lock().unwrap_or_else(PoisonError::into_inner).count_alerts(&decision.alerts);
            self.send_alerts();
        }
        let mut groups: Vec<(EffectKey, Vec<LifecycleEffect>)> = Vec::new();
        for effect in &decision.effects {
            if self.effect_delays.is_delayed(name, &effect.effect_key(), now)
                || self.must_wait_for_outputs(name, effect)
            {
                continue;
            }
            let key = EffectKey::for_effect(name, effect);
            match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, together)) => together.push(effect.clone()),
                None => groups.push((key, vec![effect.clone()])),
            }
        }
        for (key, together) in groups {
            self.begin_effect(key, together);
        }
    }

    /// The list of all outputs waits for their effects in progress; their end is a notice.
    fn must_wait_for_outputs(&self, name: &str, effect: &LifecycleEffect) -> bool {
        let is_output =
            |key: &EffectKey| key.request == name && matches!(key.subject, EffectSubject::Block(_));
        *effect == LifecycleEffect::WriteManifest && self.work_pool.is_active(is_output)
    }

    /// On another thread; not while an effect with the same key is in progress, whose end is a notice. Returns
    /// whether it was started.
    pub(super) fn begin_effect(&self, key: EffectKey, together: Vec<LifecycleEffect>) -> bool {
        let Some(view) = self.views.get(&key.request) else { return false };
        let rows: Vec<EffectRows> =
            together.iter().map(|effect| EffectRows::from_view(view, effect)).collect();
        let context = Arc::clone(&self.context);
        let run = view.run.as_ref();
        let lane =
            together.iter().find_map(|effect| work_lane(context.backends.new_run_backend, run, effect));
        for effect in &together {
            tracing::debug!(request = key.request, ?effect, "effect begins");
        }
        let work = move || {
            together
                .iter()
                .zip(&rows)
                .map(|(effect, rows)| effects::perform_effect(&context, effect, rows))
                .collect()
        };
        match lane {
            Some(lane) => self.work_pool.submit_to_lane(&lane, key, work),
            None => self.work_pool.submit_work(key, work),
        }
    }

    /// All alerts that were not sent yet.
    pub(super) fn send_alerts(&self) {
        let context = Arc::clone(&self.context);
        let key = EffectKey { request: String::new(), subject: EffectSubject::Alerts };
        self.work_pool.submit_work(key, move || {
            let filter = AlertFilter { only_unnotified: true, ..AlertFilter::default() };
            let unannounced = context.database.alerts(&filter).unwrap_or_default();
            for alert in &unannounced {
                if let Err(error) = context.options.alert_notifier.send_alert(alert) {
                    tracing::error!(%error, "an alert only reached this log");
                }
                if let Err(error) = context.database.mark_alerts_notified(&[alert.id], SystemClock.now()) {
                    tracing::error!(%error, "an alert will be sent again");
                }
            }
            // If there were any, there may be more by now.
            let again = EffectOutcome { tag: String::new(), events: Vec::new(), min_delay: Duration::ZERO };
            Vec::from_iter((!unannounced.is_empty()).then_some(again))
        });
    }
}
