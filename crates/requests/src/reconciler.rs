//! The passes over all requests that are under way: read, decide, commit, and have done outside what follows.
//!
//! One thread owns all states. Nothing that matters is in memory alone: views are rows as they were read or written last,
//! known by their version; outcomes of effects that get lost come again, because what they were about is still due.

mod bans;
mod pauses;
mod run_news;
mod sites;
mod turn;

use crate::effects::{About, Done, EffectKey};
use crate::figures::Figures;
use crate::lifecycle::{PassReport, Rounds};
use crate::mailbox::{Heard, Nudge};
use crate::pool::Pool;
use crate::world::World;
use pauses::Pauses;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use windlass_core::requests::View;
use windlass_core::requests::lifecycle::News;
use windlass_store::Error;
use windlass_types::{Clock, Timestamp};

/// What leads from one decision straight to the next is followed within a pass, but not for ever.
const TURNS: usize = 16;

/// Owns the states of all requests.
#[derive(Debug)]
pub(crate) struct Reconciler {
    world: Arc<World>,
    pool: Pool<EffectKey, Vec<Done>>,
    /// By name, as they were read or written last.
    known: BTreeMap<String, View>,
    /// What decisions have not been told yet, or were told in vain.
    news: HashMap<String, Vec<News>>,
    /// Runs that were looked at since they began. The others are, whether something was heard of them or not.
    looked_at: HashSet<String>,
    /// When to look again at a request and its run.
    wake: HashMap<String, Timestamp>,
    pauses: Pauses,
    /// Sites that are to blame and the last ones: people were told.
    last_sites: HashSet<String>,
    /// Requests and sites that are open to their runs although they are banned: people were told.
    kept_sites: BTreeSet<(String, String)>,
    /// Sites that were not enabled when DAGs were last told so; `None`: they were not told since the start.
    closed_sites: Option<BTreeSet<String>>,
    /// Requests whose DAGs have still to be told.
    dags_to_tell: BTreeSet<String>,
    /// A site was banned for a request: what follows for all is to be seen to.
    has_banned: bool,
    figures: Arc<Mutex<Figures>>,
    /// A pass failed: what was heard before it has still to be seen to.
    owes_all: bool,
}

/// What is under way is waited for, but not somebody who does not answer.
impl Drop for Reconciler {
    fn drop(&mut self) {
        self.world.backends.condor.stop();
    }
}

impl Rounds for Reconciler {
    fn pass(&mut self, heard: &Heard) -> PassReport {
        let mut report = PassReport::default();
        if let Err(error) = self.try_pass(heard, &mut report) {
            self.owes_all = true;
            report.trouble(None, &error);
        }
        report.under_way = self.pool.under_way() as u64;
        let due = self.wake.values().copied().chain(self.pauses.next()).chain(report.look_again);
        report.look_again = due.min();
        report
    }
}

impl Reconciler {
    pub(crate) fn new(world: World, nudge: Nudge, figures: Arc<Mutex<Figures>>) -> std::io::Result<Self> {
        let threads = world.options.threads.max(1);
        let pool = Pool::start(threads, move |key: &EffectKey| nudge.request(&key.request))?;
        Ok(Self {
            world: Arc::new(world),
            pool,
            known: BTreeMap::new(),
            news: HashMap::new(),
            looked_at: HashSet::new(),
            wake: HashMap::new(),
            pauses: Pauses::default(),
            last_sites: HashSet::new(),
            kept_sites: BTreeSet::new(),
            closed_sites: None,
            dags_to_tell: BTreeSet::new(),
            has_banned: false,
            figures,
            owes_all: true,
        })
    }

    fn try_pass(&mut self, heard: &Heard, report: &mut PassReport) -> Result<(), Error> {
        let now = Clock.now();
        let all = heard.all || self.owes_all;
        self.take_outcomes(report);
        self.refresh()?;
        if all {
            self.keep_sites()?;
            self.keep_bans()?;
            self.tell_alerts();
            self.keep_watched();
        }
        let mut due: Vec<String> = self.known.keys().cloned().collect();
        report.evaluated = due.len() as u64;
        self.look_at_runs(all, heard, now);
        for _ in 0..TURNS {
            due = self.turn(&due, report);
            if due.is_empty() {
                break;
            }
            self.look_at_new_runs(&due);
        }
        if !due.is_empty() {
            report.look_again = Some(now);
        }
        if std::mem::take(&mut self.has_banned) {
            self.keep_bans()?;
        }
        self.count(all)?;
        self.owes_all = false;
        Ok(())
    }

    /// What came of effects since the last pass.
    fn take_outcomes(&mut self, report: &mut PassReport) {
        let (now, usual) = (Clock.now(), self.world.options.decisions.retry_after);
        for done in self.pool.take() {
            let request = done.key.request;
            let Some(outcomes) = done.outcome else {
                // What it was about is still due; the log says where it panicked.
                self.pauses.hold_all(&request, now.after(usual));
                report.trouble(Some(&request), &"something that was done for it has failed; see the log");
                continue;
            };
            if done.key.about == About::Alerts {
                if !outcomes.is_empty() {
                    self.tell_alerts();
                }
                continue;
            }
            for Done { tag, news, pause } in outcomes {
                if let Some(error) = news.iter().find_map(turn::trouble_of) {
                    report.trouble(Some(&request), &error);
                }
                self.pauses.hold(&request, &tag, now.after(pause));
                self.news.entry(request.clone()).or_default().extend(news);
            }
        }
        self.pauses.forget_before(now);
    }

    /// Reads what somebody else has changed: a few statements, however many requests there are.
    fn refresh(&mut self) -> Result<(), Error> {
        let mut known = BTreeMap::new();
        // Another request may have added steps to these: their versions say nothing of that.
        let mut unread = self.world.books.unsettled_requests()?;
        for (name, version) in self.world.books.open_requests()? {
            match self.known.remove(&name).filter(|view| view.row.version == version) {
                Some(view) => drop(known.insert(name, view)),
                None => unread.push(name),
            }
        }
        for mut view in self.world.books.views(&unread)? {
            if view.row.status.is_terminal() {
                // All that is left to do is about its outputs.
                view.run = None;
            }
            known.insert(view.row.request.request_name.clone(), view);
        }
        self.known = known;
        self.news.retain(|name, _| self.known.contains_key(name));
        self.wake.retain(|name, _| self.known.contains_key(name));
        Ok(())
    }

    /// What is over need not be watched.
    fn keep_watched(&self) {
        let runs = self.known.values().filter_map(run_news::under_way);
        let wanted: HashSet<&str> = runs.map(|run| run.uuid.as_str()).collect();
        self.world.backends.condor.keep(|run| wanted.contains(run));
    }

    /// Of runs that something was heard of; of all of them if nobody can know.
    fn look_at_runs(&mut self, all: bool, heard: &Heard, now: Timestamp) {
        let woken: HashSet<String> =
            self.wake.extract_if(|_, at| *at <= now).map(|(request, _)| request).collect();
        let is_due = |name: &String, view: &View| {
            all || woken.contains(name)
                || run_news::workflow(view).is_some_and(|workflow| heard.workflows.contains(&workflow))
                || view.run.as_ref().is_some_and(|run| heard.runs.contains(&run.uuid))
        };
        let due = self.known.iter().filter(|(name, view)| is_due(name, view));
        let due: Vec<String> = due.map(|(name, _)| name.clone()).collect();
        for name in &due {
            self.look_at_run(name);
        }
        let others: Vec<String> = self.known.keys().cloned().collect();
        self.look_at_new_runs(&others);
    }

    /// What happened to a run before it was known here was heard in vain.
    fn look_at_new_runs(&mut self, among: &[String]) {
        let is_new = |name: &&String| {
            let run = self.known.get(*name).and_then(|view| view.run.as_ref());
            run.is_some_and(|run| !self.looked_at.contains(&run.uuid))
        };
        let new: Vec<String> = among.iter().filter(is_new).cloned().collect();
        for name in &new {
            self.look_at_run(name);
        }
    }

    fn look_at_run(&mut self, name: &str) {
        let Some(view) = self.known.get(name) else { return };
        if let (Some(run), Some(news)) = (&view.run, run_news::of(&self.world, view)) {
            self.looked_at.insert(run.uuid.clone());
            self.news.entry(name.to_owned()).or_default().push(news);
        }
    }
}
