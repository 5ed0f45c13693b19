//! A pass: reads, decides, commits, and begins what follows; as the reconciler of production does it.

use super::{About, Begun, EffectKey};
use crate::books::{Refusal, is_open};
use crate::setup::{Mistake, weather};
use crate::sim::{Event, Sim};
use std::collections::BTreeSet;
use std::convert::Infallible;
use windlass_core::requests::View;
use windlass_core::requests::admission::{self, Candidate};
use windlass_core::requests::book::{BlockRow, RunRow};
use windlass_core::requests::change::{Commit, RequestChange};
use windlass_core::requests::lifecycle::{self, Decision, Effect, News, Situation, decide, takes_place};
use windlass_core::requests::versions;
use windlass_types::requests::{CleanupPolicy, RequestStatus};

/// What leads from one decision straight to the next is followed within a pass, but not for ever.
const TURNS: usize = 16;

impl Sim {
    pub(crate) fn pass(&mut self, life: u32) {
        if life != self.server.life || !self.server.is_up || self.server.mind.pass_at != Some(self.now) {
            return;
        }
        self.server.mind.pass_at = None;
        let mut due = self.due();
        for name in &due {
            self.look_at_run(name);
        }
        for _ in 0..TURNS {
            let admitted = self.admitted();
            due.extend(admitted.iter().cloned());
            due = self.turn(&due, &admitted);
            if due.is_empty() {
                break;
            }
        }
        for name in due {
            self.server.mind.wake.insert(name, self.now);
        }
        let mind = &self.server.mind;
        let next = mind.wake.values().chain(mind.pauses.values()).copied().min();
        let everybody = mind.looked_at_all.map(|last| last.after(weather::LOOK_AT_ALL));
        if let Some(at) = next.into_iter().chain(everybody).min() {
            self.pass_by(at.max(self.now.after(std::time::Duration::from_secs(1))));
        }
    }

    /// Those that something was heard of, or that are to be looked at by now.
    fn due(&mut self) -> BTreeSet<String> {
        let now = self.now;
        let mind = &mut self.server.mind;
        let mut due = std::mem::take(&mut mind.nudged);
        due.extend(mind.wake.extract_if(.., |_, at| *at <= now).map(|(name, _)| name));
        let paused = mind.pauses.extract_if(.., |_, until| *until <= now);
        due.extend(paused.map(|((name, _), _)| name));
        if self.looks_at_all() {
            self.keep_bans();
            due.extend(self.books.open().map(|view| view.row.request.request_name.clone()));
        }
        if self.makes(Mistake::ForgetRequest) {
            due.retain(|name| !name.ends_with("7_v1"));
        }
        due
    }

    fn look_at_run(&mut self, name: &str) {
        let Some(view) = self.books.views.get(name).filter(|view| !view.row.status.is_terminal()) else {
            return;
        };
        if let Some(run) = view.run.as_ref().filter(|run| run.status.is_active()) {
            let news = self.look(name, run, view.failures.read);
            self.server.mind.news.entry(name.to_owned()).or_default().push(news);
        }
    }

    /// Whose turn it is, of all that wait.
    fn admitted(&self) -> BTreeSet<String> {
        let waiting = self.books.views.values().filter(|view| view.row.status == RequestStatus::Queued);
        let candidates: Vec<Candidate<'_>> = waiting.map(candidate).collect();
        if candidates.is_empty() {
            return BTreeSet::new();
        }
        let holders: Vec<&str> = self
            .books
            .views
            .values()
            .filter(|view| takes_place(view))
            .map(|view| view.row.request.requestor.as_str())
            .collect();
        let queue = admission::queue(&candidates, &holders, &self.admission, self.now);
        queue.iter().filter(|turn| turn.admitted).map(|turn| turn.name.to_owned()).collect()
    }

    /// Decides about these, commits, and begins effects. Those that something changed about.
    fn turn(&mut self, due: &BTreeSet<String>, admitted: &BTreeSet<String>) -> BTreeSet<String> {
        let mut changed = BTreeSet::new();
        for name in due {
            let Some(view) = self.books.views.get(name).filter(|view| is_open(view)) else { continue };
            self.figures.decisions += 1;
            self.server.names += 1;
            let fresh_uuid = format!("{name}.{}", self.server.names);
            let previous = self.previous(view);
            let situation = Situation {
                news: self.server.mind.news.get(name).map_or(&[], Vec::as_slice),
                admitted: admitted.contains(name),
                previous: &previous,
                places: &self.places(view),
                fresh_uuid: &fresh_uuid,
            };
            let mut decision = decide(view, &situation, &self.decisions, self.now);
            self.spoil(name, &mut decision);
            let commit = decision.commit(&self.books.views[name], self.now);
            // A person may say something between the decision and its commit.
            self.somebody_is_faster(name);
            match commit.map(|commit| self.commit(&commit)) {
                None => self.follow(name, &decision),
                Some(Ok(())) => {
                    self.follow(name, &decision);
                    changed.insert(name.clone());
                }
                Some(Err(Refusal::Outdated)) => drop(changed.insert(name.clone())),
                Some(Err(Refusal::Unfit(what))) => self.broken(name, what),
            }
        }
        changed
    }

    /// Commits something, whoever decided it; and sees that all is well with it.
    pub(crate) fn commit(&mut self, commit: &Commit) -> Result<(), Refusal> {
        let Some(before) = self.books.views.get(&commit.request).cloned() else { return Ok(()) };
        self.books.commit(commit)?;
        for change in &commit.changes {
            self.hear(&before, change);
        }
        self.check_commit(&before, commit);
        Ok(())
    }

    /// What is told of a commit, counted, and has people do something.
    fn hear(&mut self, before: &View, change: &RequestChange) {
        let name = &before.row.request.request_name;
        match change {
            RequestChange::Status { from, to, reason } => {
                let why = reason.as_deref().unwrap_or_default();
                self.stories.tell(self.now, name, &format!("{from} → {to} {why}"));
                if *to == RequestStatus::Held {
                    self.figures.holds += 1;
                    self.somebody_looks_later(name);
                }
            }
            RequestChange::AddRun(run) => {
                self.figures.note_run(run);
                let what = format!("run {} of round {}, {:?}", run.uuid, run.round, run.cause);
                self.stories.tell(self.now, name, &what);
            }
            RequestChange::Alert(alert) => {
                *self.figures.alerts.entry(alert.kind.clone()).or_default() += 1;
                self.stories.tell(self.now, name, &format!("alert {}: {}", alert.kind, alert.message));
            }
            RequestChange::Ban(ban) => {
                self.figures.bans += 1;
                self.stories.tell(self.now, name, &format!("{} is banned: {}", ban.site, ban.reason));
            }
            RequestChange::AddVersion(new, _) => {
                let truth = self.truths[name].clone();
                self.truths.insert(new.request_name.clone(), truth);
                self.stories.tell(self.now, name, &format!("{} takes its place", new.request_name));
                self.nudge(&new.request_name);
            }
            _ => {}
        }
    }

    /// Mistakes that are made on purpose.
    fn spoil(&mut self, name: &str, decision: &mut Decision) {
        if self.makes(Mistake::SwallowAlerts) {
            decision.changes.retain(|change| !matches!(change, RequestChange::Alert(_)));
        }
        let status = self.books.views[name].row.status;
        if self.makes(Mistake::FailByItself) && status == RequestStatus::Held {
            let to = RequestStatus::Failed;
            decision.changes.push(RequestChange::Status { from: status, to, reason: None });
        }
    }

    /// Where units of the run may go, if a decision may want to ban sites.
    fn places(&self, view: &View) -> Vec<BTreeSet<String>> {
        let name = &view.row.request.request_name;
        let news = self.server.mind.news.get(name).into_iter().flatten();
        let may_ban = |news: &News| match news {
            News::Run(news) => lifecycle::may_ban(&view.failures, news, &self.decisions.blame, self.now),
            _ => false,
        };
        let Some(run) = view.run.as_ref().filter(|_| news.into_iter().any(may_ban)) else {
            return Vec::new();
        };
        let banned = self.books.banned(name, self.now);
        let open = |sites: BTreeSet<String>| sites.difference(&banned).cloned().collect();
        self.places_of(run).into_iter().map(open).collect()
    }

    /// Sets of sites that units of a run may go to.
    pub(super) fn places_of(&self, run: &RunRow) -> Vec<BTreeSet<String>> {
        let Some(plan) = self.disk.get(&run.submit_dir) else { return Vec::new() };
        let sets: BTreeSet<BTreeSet<String>> =
            plan.units().map(|unit| unit.sites().map(str::to_owned).collect()).collect();
        sets.into_iter().collect()
    }

    /// Blocks of the versions that go as soon as this one is completed.
    fn previous(&self, view: &View) -> Vec<BlockRow> {
        let request = &view.row.request;
        let wanted = request.cleanup_policy == CleanupPolicy::ImmediateCleanup;
        if !wanted {
            return Vec::new();
        }
        let read = |name: &str| Ok::<_, Infallible>(self.books.views.get(name));
        let Ok(earlier) = versions::earlier(request, read, |view| &view.row.request);
        earlier.into_iter().flat_map(|view| view.blocks.clone()).collect()
    }

    /// What was told is told; what follows is begun.
    fn follow(&mut self, name: &str, decision: &Decision) {
        let now = self.now;
        let mind = &mut self.server.mind;
        mind.news.remove(name);
        if let Some(at) = decision.look_again {
            let wake = mind.wake.entry(name.to_owned()).or_insert(at);
            *wake = at.min(*wake);
        }
        let Some(view) = self.books.views.get(name) else { return };
        let mut groups: Vec<(EffectKey, Vec<Begun>)> = Vec::new();
        for effect in &decision.effects {
            let pause = mind.pauses.get(&(name.to_owned(), effect.tag()));
            let key = EffectKey { request: name.to_owned(), about: about(effect) };
            if pause.is_some_and(|until| *until > now) || mind.under_way.contains_key(&key) {
                continue;
            }
            let begun = Begun::new(view, effect);
            match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, together)) => together.push(begun),
                None => groups.push((key, vec![begun])),
            }
        }
        for (key, together) in groups {
            let takes = super::effects::takes(&together[0].effect, &mut self.server.dice);
            self.server.mind.under_way.insert(key.clone(), together);
            let life = self.server.life;
            self.later(takes, Event::Outcome { life, key });
        }
    }
}

fn about(effect: &Effect) -> About {
    match effect {
        Effect::Import | Effect::Plan { .. } | Effect::Settle { .. } | Effect::Manifest => About::Plan,
        Effect::Step(step) => About::Block(step.block.clone()),
        _ => About::Run,
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
