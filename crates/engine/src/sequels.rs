//! What follows failures, for everybody who keeps a board: what a failure was, which rule speaks about it, and whether the
//! workflow can still afford another attempt.

use std::borrow::Cow;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;
use windlass_core::board::{Board, Diagnosis, Failed, Followed, Sequel};
use windlass_core::change::Alarm;
use windlass_core::classify::{Cause, Classifier, Evidence, NodeRecord};
use windlass_core::dispatch::Place;
use windlass_core::handlers::{self, BadRule, Budget, Decision, Final, Handler, Situation, Stop, decide};
use windlass_store::model::{EventFilter, NewEvent, Severity, WorkflowRow};
use windlass_store::{Error, Store};
use windlass_types::settings::{FailureHandler, FailureRule, RetryBudget};
use windlass_types::work::{EndCause, Ended};
use windlass_types::{Capacity, Timestamp};

/// The event by which everybody remembers whether the retries of a run are used up.
const BUDGET_EVENT: &str = "retry_budget";

/// What one workflow says about failures, and what it has spent on them.
pub(crate) struct Sequels {
    handlers: Vec<Compiled>,
    classifier: Option<Arc<Classifier>>,
    /// Somebody is asked about failures that nobody foresaw.
    asks: bool,
    budget: Option<RetryBudget>,
    /// Retries of this run before somebody last had it go on though they were used up, and since then.
    before: u64,
    granted: u64,
    is_used_up: bool,
    dice: Dice,
}

struct Compiled {
    handler: Result<Handler, BadRule>,
    /// Some of its rules have jobs ask for more.
    grows: bool,
}

impl Compiled {
    fn of(handler: &FailureHandler) -> Self {
        let grows =
            |rule: &FailureRule| rule.memory.is_some() || rule.runtime.is_some() || rule.cpus.is_some();
        Self { handler: Handler::compile(handler), grows: handler.rules.iter().any(grows) }
    }
}

/// What a decision depends on beside the failure and the rules.
#[derive(Clone, Copy)]
pub(crate) struct Around<'a> {
    /// What the workers can give that take jobs of a place. Asked only if it matters.
    pub(crate) room: &'a dyn Fn(&Place) -> Room,
    /// How the node of the attempt did lately.
    pub(crate) node: Option<NodeRecord>,
    pub(crate) now: Timestamp,
}

/// What workers can give; nothing of it where nobody knows.
#[derive(Default)]
pub(crate) struct Room {
    pub(crate) workers: Vec<Capacity>,
    /// None of them stays longer than this altogether.
    pub(crate) longest: Option<Duration>,
}

impl Sequels {
    /// Of what is on the board. `None` for `classifier`: only the rules that are built in say of what class a failure is.
    pub(crate) fn of(
        store: &dyn Store,
        workflow: &WorkflowRow,
        board: &Board,
        classifier: Option<Arc<Classifier>>,
    ) -> Result<Self, Error> {
        let mut sequels = Self {
            handlers: board.handlers().iter().map(Compiled::of).collect(),
            classifier,
            asks: workflow.settings.use_pending_failed,
            budget: workflow.settings.retry_budget,
            before: 0,
            granted: board.retries_granted(),
            is_used_up: false,
            dice: Dice::new(),
        };
        // Nobody can have noted anything before that.
        if sequels.granted >= RetryBudget::limit(sequels.budget, board.counts().total()) {
            sequels.recall(store, workflow)?;
        }
        Ok(sequels)
    }

    /// What the books say of the budget.
    fn recall(&mut self, store: &dyn Store, workflow: &WorkflowRow) -> Result<(), Error> {
        let Some(noted) = noted(store, workflow)? else { return Ok(()) };
        self.is_used_up = noted["is_used_up"] == true;
        if !self.is_used_up {
            self.before = noted["granted"].as_u64().unwrap_or(0).min(self.granted);
            self.granted -= self.before;
        }
        Ok(())
    }

    /// Decides what follows a failure.
    pub(crate) fn follow(&mut self, failed: Failed<'_>, around: &Around<'_>) -> Followed {
        let words = last_words(failed.ended);
        let evidence = evidence(&failed, &words, around.node);
        let classifier = self.classifier.as_deref().unwrap_or_else(|| Classifier::standard());
        let diagnosis = Diagnosis::of(classifier, &evidence);
        let failure = handlers::Failure { last_words: &words, ..failed.failure(diagnosis.class) };
        let limit = RetryBudget::limit(self.budget, failed.jobs);
        let compiled = failed.handler.and_then(|number| self.handlers.get(number));
        let grows = compiled.is_some_and(|it| it.grows);
        let room = if grows { (around.room)(failed.place) } else { Room::default() };
        let situation = Situation {
            attempt: failed.ended.key.attempt,
            used: failed.used,
            asked: failed.asked,
            workers: &room.workers,
            longest: room.longest,
            budget: Budget { granted: self.granted, limit },
            dice: self.dice.throw(),
        };
        let decision = match compiled.map(|it| &it.handler) {
            Some(Err(bad)) => {
                Decision::Final(Final { why: Stop::NoMatchingRule, words: Some(bad.to_string()) })
            }
            Some(Ok(handler)) => decide(Some(handler), &failure, &situation),
            None => decide(None, &failure, &situation),
        };
        match &decision {
            Decision::Retry(_) => self.granted += 1,
            Decision::Final(last) => self.is_used_up |= last.why == Stop::OverBudget,
        }
        Followed { sequel: Sequel::of(decision, self.asks, around.now), diagnosis: Some(diagnosis) }
    }

    /// A retry was refused because all that the workflow may have are granted: nothing more is to begin.
    pub(crate) const fn is_used_up(&self) -> bool {
        self.is_used_up
    }

    /// How many jobs may be claimed ahead, of a workflow with so many jobs of which so many are held. While failures use up
    /// the retries, what is claimed ahead is not more than what they still allow: it starts also after they are used up.
    pub(crate) fn most_ahead(&self, jobs: u64, held: usize) -> usize {
        if self.granted == 0 {
            return usize::MAX;
        }
        let left = RetryBudget::limit(self.budget, jobs).saturating_sub(self.granted);
        usize::try_from(left).unwrap_or(usize::MAX).saturating_sub(held)
    }

    /// Somebody knows that the retries are used up and has the workflow go on. What is noted of it.
    pub(crate) fn renew(&mut self, workflow: &WorkflowRow) -> NewEvent {
        self.before += std::mem::take(&mut self.granted);
        self.is_used_up = false;
        let data =
            serde_json::json!({ "run_id": workflow.run_id, "is_used_up": false, "granted": self.before });
        NewEvent {
            workflow: Some(workflow.id),
            job: None,
            severity: Severity::Info,
            category: BUDGET_EVENT.to_owned(),
            message: "the retry budget begins anew".to_owned(),
            data: Some(data),
        }
    }

    /// What is noted, and told, when the retries are used up: in the same commit as the failure that could have no more.
    pub(crate) fn used_up(&self, workflow: &WorkflowRow) -> Alarm {
        let message = format!(
            "the retry budget is used up ({} retries were granted): nothing more is begun until somebody has the workflow go on",
            self.granted
        );
        let granted = self.before + self.granted;
        let data = serde_json::json!({ "run_id": workflow.run_id, "is_used_up": true, "granted": granted });
        Alarm { category: BUDGET_EVENT.to_owned(), message, data }
    }
}

/// The last word about the budget in this run.
fn noted(store: &dyn Store, workflow: &WorkflowRow) -> Result<Option<serde_json::Value>, Error> {
    let filter =
        EventFilter { category: Some(BUDGET_EVENT.to_owned()), newest: Some(1), ..EventFilter::default() };
    let last = store.events(Some(workflow.id), &filter)?.pop().and_then(|event| event.data);
    Ok(last.filter(|data| data["run_id"].as_i64() == Some(workflow.run_id.0)))
}

/// Whether nothing more is begun because all retries that the workflow may have were granted.
pub fn budget_is_used_up(store: &dyn Store, workflow: &WorkflowRow) -> Result<bool, Error> {
    Ok(noted(store, workflow)?.is_some_and(|noted| noted["is_used_up"] == true))
}

fn evidence<'a>(failed: &Failed<'a>, tail: &'a str, node: Option<NodeRecord>) -> Evidence<'a> {
    let ended = failed.ended;
    Evidence {
        return_code: failed.return_code,
        signal: ended.exit.signal(),
        cause: Cause::from(&ended.cause),
        tail,
        wall: ended.wall,
        peak_memory: ended.usage.peak_memory,
        asked: failed.asked,
        node,
    }
}

/// The end of what it wrote; what was found about its end, where it wrote nothing.
fn last_words(ended: &Ended) -> Cow<'_, str> {
    match (ended.last_words.as_deref().filter(|words| !words.trim().is_empty()), &ended.cause) {
        (Some(words), _) => words.into(),
        (None, EndCause::CannotStart(why)) => why.into(),
        (None, EndCause::MissingOutputs(paths)) => format!("did not write {}", paths.join(", ")).into(),
        (None, _) => "".into(),
    }
}

/// Numbers by chance, which need not be hard to guess: jobs that failed together are not to come back together.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        Self(RandomState::new().hash_one(0))
    }

    fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}
