//! One turn of a pass: decisions about several requests, committed together, and what they have done outside.

use super::Reconciler;
use crate::backend::lane;
use crate::effects::{self, About, Done, EffectKey, Rows};
use crate::lifecycle::PassReport;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use uuid::Uuid;
use windlass_core::requests::View;
use windlass_core::requests::admission::{self, Candidate};
use windlass_core::requests::book::BlockRow;
use windlass_core::requests::change::{Commit, RequestChange};
use windlass_core::requests::lifecycle::{Decision, Effect, News, Situation, decide, takes_place};
use windlass_core::requests::versions;
use windlass_store::Error;
use windlass_store::model::AlertFilter;
use windlass_types::requests::{CleanupPolicy, RequestStatus};
use windlass_types::{Clock, Timestamp};

/// A decision about one request.
struct Made {
    name: String,
    decision: Decision,
    commit: Option<Commit>,
}

/// What went wrong with an effect, if it did.
pub(super) fn trouble_of(news: &News) -> Option<String> {
    match news {
        News::ImportFailed(trouble)
        | News::PlanFailed(trouble)
        | News::SubmitFailed { trouble, .. }
        | News::StopFailed { trouble, .. }
        | News::SettleFailed { trouble, .. } => Some(trouble.reason.clone()),
        News::ManifestFailed { reason } => Some(reason.clone()),
        News::Step { kind, outcome: Err(error), .. } => Some(format!("{}: {error}", kind.name())),
        _ => None,
    }
}

fn candidate(view: &View) -> Candidate<'_> {
    let request = &view.row.request;
    Candidate {
        name: &request.request_name,
        requestor: &request.requestor,
        urgent: request.urgent,
        priority: request.priority,
        created_at: view.row.created_at,
        queued_since: view.row.since,
    }
}

impl Reconciler {
    /// Decides about these, commits, and begins effects. Those that something changed about, or that have to be read anew.
    pub(super) fn turn(&mut self, due: &[String], report: &mut PassReport) -> Vec<String> {
        let now = Clock.now();
        let admitted = self.admitted(now);
        let mut made = Vec::with_capacity(due.len());
        for name in due {
            match self.decide(name, admitted.contains(name), now) {
                Ok(one) => made.extend(one),
                Err(error) => report.trouble(Some(name), &error),
            }
        }
        let commits: Vec<Commit> = made.iter().filter_map(|one| one.commit.clone()).collect();
        let results = match commits.as_slice() {
            [] => Vec::new(),
            commits => self.world.books.apply_requests(commits),
        };
        let mut results = results.into_iter();
        let mut changed = Vec::new();
        for one in made {
            let Some(commit) = &one.commit else {
                self.follow(&one.name, &one.decision, now);
                continue;
            };
            match results.next() {
                Some(Ok(version)) => {
                    self.note(&one.name, commit, version);
                    self.follow(&one.name, &one.decision, now);
                    report.changed += 1;
                    changed.push(one.name);
                }
                Some(Err(error)) => self.refused(&one.name, &error, report),
                None => report.trouble(Some(&one.name), &"the database did not say what became of a commit"),
            }
        }
        changed
    }

    /// Whose turn it is, of all that wait.
    fn admitted(&self, now: Timestamp) -> HashSet<String> {
        let waiting = self.known.values().filter(|view| view.row.status == RequestStatus::Queued);
        let candidates: Vec<Candidate<'_>> = waiting.map(candidate).collect();
        if candidates.is_empty() {
            return HashSet::new();
        }
        let holders: Vec<&str> = self
            .known
            .values()
            .filter(|view| takes_place(view))
            .map(|view| view.row.request.requestor.as_str())
            .collect();
        let queue = admission::queue(&candidates, &holders, &self.world.admission(), now);
        queue.iter().filter(|turn| turn.admitted).map(|turn| turn.name.to_owned()).collect()
    }

    fn decide(&self, name: &str, admitted: bool, now: Timestamp) -> Result<Option<Made>, Error> {
        let Some(view) = self.known.get(name) else { return Ok(None) };
        let previous = self.previous(view)?;
        let places = self.places_of(name, view, now)?;
        let uuid = Uuid::new_v4().to_string();
        let situation = Situation {
            news: self.news.get(name).map_or(&[], Vec::as_slice),
            admitted,
            previous: &previous,
            places: &places,
            fresh_uuid: &uuid,
        };
        let settings = &self.world.options.decisions;
        // A mistake in the rules must not keep the others waiting.
        let decided = catch_unwind(AssertUnwindSafe(|| decide(view, &situation, settings, now)));
        let Ok(decision) = decided else {
            tracing::error!(request = name, "deciding about a request has failed");
            return Ok(None);
        };
        let commit = decision.commit(view, now);
        Ok(Some(Made { name: name.to_owned(), decision, commit }))
    }

    /// Blocks of the versions that go as soon as this one is completed: of all before it, as those in between may have failed.
    fn previous(&self, view: &View) -> Result<Vec<BlockRow>, Error> {
        let request = &view.row.request;
        let wanted = view.row.status == RequestStatus::Active
            && request.cleanup_policy == CleanupPolicy::ImmediateCleanup;
        if !wanted {
            return Ok(Vec::new());
        }
        let mut blocks = Vec::new();
        for version in versions::earlier(request, |name| self.world.books.request(name), |row| &row.request)?
        {
            if let Some(process) = self.world.books.process(&version.request.request_name)? {
                blocks.extend(self.world.books.blocks(&process.uuid)?);
            }
        }
        Ok(blocks)
    }

    /// It is on disk.
    fn note(&mut self, name: &str, commit: &Commit, version: i64) {
        self.has_banned |= commit.changes.iter().any(|change| matches!(change, RequestChange::Ban(_)));
        if let Some(view) = self.known.get_mut(name) {
            for change in &commit.changes {
                view.apply(change, commit.at);
            }
            view.row.version = version;
            view.row.updated_at = commit.at;
        }
        if let Some(told) = &self.world.options.on_commit {
            told(name);
        }
    }

    /// Somebody else was faster: the rows are read again, and what was heard is told once more. Anything else is a mistake
    /// of ours, or the database's trouble.
    fn refused(&mut self, name: &str, error: &Error, report: &mut PassReport) {
        self.known.remove(name);
        let now = Clock.now();
        if matches!(error, Error::Outdated { .. }) {
            self.wake.insert(name.to_owned(), now);
            return;
        }
        tracing::error!(request = name, %error, "a decision about a request was not accepted");
        report.trouble(Some(name), error);
        if !error.is_transient() {
            self.news.remove(name);
        }
        let later = now.after(self.world.options.decisions.retry_after);
        self.wake.insert(name.to_owned(), later);
    }

    /// What was told is told; what follows is begun.
    fn follow(&mut self, name: &str, decision: &Decision, now: Timestamp) {
        self.news.remove(name);
        if let Some(at) = decision.look_again {
            let wake = self.wake.entry(name.to_owned()).or_insert(at);
            *wake = at.min(*wake);
        }
        if !decision.alerts.is_empty() {
            self.figures.lock().unwrap_or_else(PoisonError::into_inner).alerted(&decision.alerts);
            self.tell_alerts();
        }
        let mut groups: Vec<(EffectKey, Vec<Effect>)> = Vec::new();
        for effect in &decision.effects {
            if self.pauses.holds(name, &effect.tag(), now) || self.comes_too_early(name, effect) {
                continue;
            }
            let key = EffectKey::of(name, effect);
            match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, together)) => together.push(effect.clone()),
                None => groups.push((key, vec![effect.clone()])),
            }
        }
        for (key, together) in groups {
            self.begin(key, together);
        }
    }

    /// What lists all outputs waits for what is being done about them; it is told when that is over.
    fn comes_too_early(&self, name: &str, effect: &Effect) -> bool {
        let is_output = |key: &EffectKey| key.request == name && matches!(key.about, About::Block(_));
        *effect == Effect::Manifest && self.pool.is_busy(is_output)
    }

    /// On another thread; not if something with the same key is under way, which tells us when it is over.
    /// Returns whether it was begun.
    pub(super) fn begin(&self, key: EffectKey, together: Vec<Effect>) -> bool {
        let Some(view) = self.known.get(&key.request) else { return false };
        let rows: Vec<Rows> = together.iter().map(|effect| Rows::of(view, effect)).collect();
        let world = Arc::clone(&self.world);
        let run = view.run.as_ref();
        let lane = together.iter().find_map(|effect| lane(world.backends.for_new, run, effect));
        let work = move || {
            together.iter().zip(&rows).map(|(effect, rows)| effects::perform(&world, effect, rows)).collect()
        };
        match lane {
            Some(lane) => self.pool.offer_in(&lane, key, work),
            None => self.pool.offer(key, work),
        }
    }

    /// All that nobody was told of yet.
    pub(super) fn tell_alerts(&self) {
        let world = Arc::clone(&self.world);
        let key = EffectKey { request: String::new(), about: About::Alerts };
        self.pool.offer(key, move || {
            let filter = AlertFilter { only_untold: true, ..AlertFilter::default() };
            let untold = world.books.alerts(&filter).unwrap_or_default();
            for alert in &untold {
                if let Err(error) = world.options.bell.ring(alert) {
                    tracing::error!(%error, "an alert did not reach anybody but this log");
                }
                if let Err(error) = world.books.mark_alerts_told(&[alert.id], Clock.now()) {
                    tracing::error!(%error, "an alert will be told again");
                }
            }
            // If there were any, there may be more by now.
            let again = Done { tag: String::new(), news: Vec::new(), pause: Duration::ZERO };
            Vec::from_iter((!untold.is_empty()).then_some(again))
        });
    }
}
