//! People: whoever looks at requests that are held, and those who change their minds.

use crate::dice::Dice;
use crate::setup::{Mistake, weather};
use crate::sim::{Event, Sim};
use crate::wishes::Flaw;
use std::collections::BTreeMap;
use std::time::Duration;
use windlass_core::requests::book::{NewBan, Overrides, Want, Wanted};
use windlass_core::requests::change::{Commit, RequestChange};
use windlass_core::requests::failures::report;
use windlass_core::requests::versions::{self, Taken};
use windlass_types::FailureClass;
use windlass_types::requests::{CleanupPolicy, RequestStatus};

const NAME: &str = "olga";
/// Who released a request so often in vain gives up; and nobody should have to.
const MOST_RELEASES: u32 = 25;

#[derive(Debug)]
pub(crate) struct People {
    dice: Dice,
    /// What is said at the next decision about a request, just before it is committed.
    racing: BTreeMap<String, Vec<RequestChange>>,
    releases: BTreeMap<String, u32>,
}

impl People {
    pub(crate) fn new(seed: u64) -> Self {
        Self { dice: Dice::of(seed, "people"), racing: BTreeMap::new(), releases: BTreeMap::new() }
    }
}

impl Sim {
    /// A request is held: somebody will see it, some time.
    pub(crate) fn somebody_looks_later(&mut self, request: &str) {
        let (low, high) = weather::PERSON_AFTER;
        let after = self.people.dice.hours(low, high);
        self.later(after, Event::Person(request.to_owned()));
    }

    /// Somebody looks at a request that is held, and does something about it.
    pub(crate) fn person_looks(&mut self, request: &str) {
        let Some(view) = self.books.views.get(request) else { return };
        if view.row.status != RequestStatus::Held {
            return;
        }
        if view.row.wanted.is_some() {
            // Somebody was here a moment ago.
            return self.somebody_looks_later(request);
        }
        if self.people.dice.chance(0.1) {
            self.lift_a_ban();
        }
        // Whatever was broken is mended by now.
        if let Some(truth) = self.truths.get_mut(request) {
            truth.wish.is_broken = false;
        }
        let releases = self.people.releases.entry(request.to_owned()).or_default();
        *releases += 1;
        if *releases > MOST_RELEASES {
            return self.broken(request, format!("it was released {MOST_RELEASES} times, and is held again"));
        }
        match self.people.dice.below(100) {
            0..2 => self.end(request, Want::Fail),
            2..3 => self.end(request, Want::Abort),
            3..6 => self.replace(request),
            _ => self.release(request),
        }
    }

    fn release(&mut self, request: &str) {
        let mut changes = self.modifications(request);
        let mut wanted = Wanted::new(Want::Release, NAME, "have looked at it", self.now);
        wanted.rescue = self.people.dice.chance(0.15);
        changes.push(RequestChange::Wanted(Some(wanted)));
        self.say(request, "release", changes);
    }

    /// Sometimes more than a release: what the report of errors suggests, or what somebody thinks of.
    fn modifications(&mut self, request: &str) -> Vec<RequestChange> {
        let mut changes = Vec::new();
        let mut now = Overrides::default();
        if self.people.dice.chance(0.2) {
            now.retry_count = Some(self.people.dice.within(2, 5) as u32);
            now.max_rescue_attempts = Some(self.people.dice.within(1, 5) as u32);
        }
        let view = &self.books.views[request];
        let report = report(&view.failures);
        if self.people.dice.chance(0.5) {
            let most = self.plan_settings.max_memory_per_core * u64::from(view.row.request.multicore);
            let kinds = view.failures.kinds.iter().filter(|kind| kind.class == FailureClass::Memory);
            let used = kinds.filter_map(|kind| kind.memory_mb).max();
            now.memory_mb = used.map(|used| (used + used / 5).min(most));
        }
        if self.people.dice.chance(0.3) {
            now.excluded_files = report.bad_files.iter().map(|file| file.lfn.clone()).collect();
        }
        if self.people.releases[request] > 2 {
            now.excluded_files.extend(self.poison_of(request));
        }
        let left_out = self.watch.left_out.entry(request.to_owned()).or_default();
        left_out.extend(now.excluded_files.iter().cloned());
        if !now.is_empty() {
            let overrides = view.row.overrides.clone().with(now);
            changes.push(RequestChange::Overrides(Box::new(overrides)));
        }
        let worst = report.by_site.iter().find(|site| site.blamed >= 3 && 2 * site.blamed > site.ended);
        let worst = worst.map(|site| site.site.clone()).filter(|site| self.can_do_without(request, site));
        if let Some(site) = worst.filter(|_| self.people.dice.chance(0.5)) {
            changes.push(RequestChange::Ban(Box::new(NewBan {
                site,
                request: Some(request.to_owned()),
                reason: "most of it fails there".to_owned(),
                failure_data: serde_json::Value::Null,
                by: NAME.to_owned(),
                expires_at: self.now.after(Duration::from_hours(48)),
            })));
        }
        changes
    }

    /// Who has looked at a request often enough finds out what crashes it.
    fn poison_of(&self, request: &str) -> Vec<String> {
        let flaws = self.truths[request].data.flaws.iter();
        flaws.filter(|(_, flaw)| **flaw == Flaw::Poison).map(|(lfn, _)| lfn.clone()).collect()
    }

    /// Whoever bans a site sees to it that all of the work has another one.
    fn can_do_without(&self, request: &str, site: &str) -> bool {
        let view = &self.books.views[request];
        let plan = view.run.as_ref().and_then(|run| self.disk.get(&run.submit_dir));
        let banned = self.books.banned(request, self.now);
        let has_other = |mut sites: Box<dyn Iterator<Item = &str> + '_>| {
            sites.any(|one| one != site && !banned.contains(one))
        };
        self.land.number(site).is_some()
            && plan.is_some_and(|plan| plan.units().all(|unit| has_other(Box::new(unit.sites()))))
    }

    /// Bans for all are looked at now and then, too: some are thought to be over.
    fn lift_a_ban(&mut self) {
        let now = self.now;
        let mut active =
            self.books.bans.iter_mut().filter(|ban| {
                ban.ban.request.is_none() && ban.removed_at.is_none() && ban.ban.expires_at > now
            });
        if let Some(ban) = active.next() {
            ban.removed_at = Some(now);
            ban.removed_by = Some(NAME.to_owned());
            *self.figures.acts.entry("unban".to_owned()).or_default() += 1;
        }
    }

    fn end(&mut self, request: &str, what: Want) {
        self.watch.unwanted.insert(request.to_owned());
        let wanted = Wanted::new(what, NAME, "is not worth it", self.now);
        let word = if what == Want::Fail { "fail" } else { "abort" };
        self.say(request, word, vec![RequestChange::Wanted(Some(wanted))]);
    }

    /// Kill and clone.
    fn replace(&mut self, request: &str) {
        let row = &self.books.views[request].row;
        let (old, overrides) = (&row.request, row.overrides.clone());
        let policy = if self.people.dice.chance(0.5) {
            CleanupPolicy::ImmediateCleanup
        } else {
            CleanupPolicy::KeepUntilReplaced
        };
        let new = versions::next_version(
            old,
            policy,
            &Taken {
                name: &|name| self.books.views.contains_key(name),
                dataset: &|dataset| {
                    let mut others = self.books.views.values().map(|view| &view.row.request);
                    others.any(|other| other.output_datasets.iter().any(|name| name == dataset))
                },
            },
        );
        self.watch.unwanted.insert(request.to_owned());
        let wanted = Wanted::new(Want::Fail, NAME, "once more from the beginning", self.now);
        let changes = vec![
            RequestChange::Wanted(Some(wanted)),
            RequestChange::SupersededBy(Some(new.request_name.clone())),
            RequestChange::AddVersion(Box::new(new), Box::new(overrides)),
        ];
        self.say(request, "restart", changes);
    }

    /// Somebody changes his mind about a request that is under way.
    pub(crate) fn whim(&mut self) {
        let open: Vec<String> = self
            .books
            .views
            .values()
            .filter(|view| !view.row.status.is_terminal() && view.row.wanted.is_none())
            .map(|view| view.row.request.request_name.clone())
            .collect();
        if open.is_empty() {
            return;
        }
        let request = self.people.dice.pick(&open).clone();
        let now = self.now;
        let want = |what| RequestChange::Wanted(Some(Wanted::new(what, NAME, "for the time being", now)));
        match self.people.dice.below(10) {
            0..4 => self.say(&request, "stop", vec![want(Want::Stop)]),
            4 => self.say(&request, "remove", vec![want(Want::Remove)]),
            5 => self.say(&request, "urgent", vec![RequestChange::Urgent(true)]),
            6 if self.people.dice.chance(0.3) => self.end(&request, Want::Abort),
            7 => self.say(&request, "release", vec![want(Want::Release)]),
            _ => {
                let priority = self.people.dice.within(100, 6000) as i64;
                self.say(&request, "priority", vec![RequestChange::Priority(priority)]);
            }
        }
    }

    /// At once, or just when a decision is being made.
    fn say(&mut self, request: &str, word: &str, changes: Vec<RequestChange>) {
        *self.figures.acts.entry(word.to_owned()).or_default() += 1;
        self.stories.tell(self.now, request, &format!("{NAME}: {word}"));
        if self.people.dice.chance(0.3) {
            self.people.racing.entry(request.to_owned()).or_default().extend(changes);
        } else {
            self.say_now(request, changes);
        }
        self.nudge(request);
    }

    fn say_now(&mut self, request: &str, changes: Vec<RequestChange>) {
        let Some(view) = self.books.views.get(request) else { return };
        // As the interface has it: who wanted the end is not talked out of it.
        let is_ending =
            view.row.wanted.as_ref().is_some_and(|wanted| matches!(wanted.what, Want::Fail | Want::Abort));
        if view.row.status.is_terminal() || is_ending || self.makes(Mistake::LoseWishes) {
            return;
        }
        let commit = Commit {
            request: request.to_owned(),
            version: view.row.version,
            changes,
            by: NAME.to_owned(),
            at: self.now,
        };
        if let Err(refusal) = self.commit(&commit) {
            self.broken(request, format!("what {NAME} said was refused: {refusal:?}"));
        }
    }

    /// What is said between a decision and its commit.
    pub(crate) fn somebody_is_faster(&mut self, request: &str) {
        if let Some(changes) = self.people.racing.remove(request) {
            self.say_now(request, changes);
            self.nudge(request);
        }
    }
}
