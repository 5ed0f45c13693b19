//! What follows the failure of an attempt, as [`crate::handlers`] decided, and what the next attempt inherits.

use super::{Board, Diagnosis, Failure, Next, Stale, Verdict};
use crate::change::Change;
use crate::dispatch::Place;
use crate::handlers::{self, Decision};
use crate::judge::judge;
use crate::state::JobEvent;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use windlass_types::settings::{FailureCause, FailureHandler};
use windlass_types::work::{Ended, Recovery};
use windlass_types::{FailureClass, Resources, Timestamp, WorkerId};

/// What attempts leave to the next one of the same job, beside its number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Carried {
    /// Nobody may claim it earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// How long that was ahead when it was decided: it never waits longer, whatever the clock says later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
    /// Owed before it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
    /// Attempts of this run that count for no rule.
    pub excused: u32,
    /// What the job asks for from now on, where that has just changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
}

/// An attempt that failed or was terminated, before it is decided what follows.
#[derive(Clone, Copy, Debug)]
pub struct Failed<'a> {
    pub job: u32,
    pub ended: &'a Ended,
    pub return_code: i32,
    /// `None`: it named nothing, so nothing limits it.
    pub asked: Option<Resources>,
    /// Attempts that count, this one included.
    pub used: u32,
    /// Who says what follows, by his number among [`Board::handlers`].
    pub handler: Option<usize>,
    /// Where it belongs.
    pub place: &'a Place,
    /// How many jobs the workflow has.
    pub jobs: u64,
}

impl Failed<'_> {
    /// As rules ask about it.
    pub fn failure(&self, class: FailureClass) -> handlers::Failure<'_> {
        handlers::Failure {
            return_code: self.return_code,
            exit: Some(self.ended.exit),
            cause: FailureCause::of(&self.ended.cause),
            class,
            last_words: self.ended.last_words.as_deref().unwrap_or_default(),
        }
    }
}

/// What follows a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sequel {
    /// The job has failed, or was terminated, as its attempt. With words, where there are any.
    Final(Option<String>),
    /// Somebody is to say what happens next.
    Ask(Option<String>),
    /// It is tried again.
    Again(Box<Retrial>),
}

/// What follows a failure, and what it was found to be, if anybody looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed {
    pub sequel: Sequel,
    pub diagnosis: Option<Diagnosis>,
}

impl From<Sequel> for Followed {
    fn from(sequel: Sequel) -> Self {
        Self { sequel, diagnosis: None }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retrial {
    pub not_before: Option<Timestamp>,
    pub delay: Option<Duration>,
    pub recovery: Option<Recovery>,
    pub resources: Option<Resources>,
    pub words: String,
}

impl Sequel {
    /// What a decision comes to at this time, where unforeseen failures may be asked about.
    pub fn of(decision: Decision, asks: bool, now: Timestamp) -> Self {
        match decision {
            Decision::Final(last) if asks && last.why.is_unforeseen() => Self::Ask(last.words),
            Decision::Final(last) => Self::Final(last.words),
            Decision::Retry(retry) => {
                let delay = Some(retry.delay).filter(|delay| !delay.is_zero());
                Self::Again(Box::new(Retrial {
                    not_before: delay.map(|delay| now.after(delay)),
                    delay,
                    recovery: retry.recovery,
                    resources: retry.resources,
                    words: retry.words,
                }))
            }
        }
    }

    fn words(&self) -> Option<&str> {
        match self {
            Self::Final(words) | Self::Ask(words) => words.as_deref(),
            Self::Again(again) => Some(&again.words),
        }
    }
}

/// How an attempt leads to another one.
pub(super) enum Onward {
    /// As its rule says; or somebody else asked for it, and then nothing comes with it.
    Retry(Box<Retrial>),
    /// It was nobody's failure.
    Excused,
    /// The same, but it has a worker to itself from now on.
    ExcusedAlone,
}

/// What comes of an attempt that is over.
pub(super) struct Follows {
    pub(super) onward: Onward,
    pub(super) failure: Option<Box<Failure>>,
}

impl Board {
    /// As [`Board::on_ended`]; `decide` is asked what follows if the attempt failed or was terminated.
    pub fn on_ended_then(
        &mut self,
        worker: WorkerId,
        ended: &Ended,
        decide: impl FnOnce(Failed<'_>) -> Followed,
        changes: &mut Vec<Change>,
    ) -> Result<Verdict, Stale> {
        let job = self.fenced(&ended.key)?;
        let mut judged = judge(ended, self.resources(job), self.codes, self.canceling);
        let mut follows = Follows { onward: Onward::Excused, failure: None };
        if matches!(judged.event, JobEvent::Fail | JobEvent::Terminate) && !self.canceling {
            let Followed { sequel, diagnosis } = decide(Failed {
                job,
                ended,
                return_code: judged.return_code,
                asked: self.asked_for_resources(job).then(|| *self.resources(job)),
                used: self.used(job),
                handler: self.handler(job),
                place: &self.demand(job).place,
                jobs: self.ids.len() as u64,
            });
            let (next, why) = (Next::from(&sequel), sequel.words().map(str::to_owned));
            let last_words = || ended.last_words.as_deref().map(str::to_owned);
            follows.failure = diagnosis
                .map(|diagnosis| Box::new(Failure { diagnosis, next, why, last_words: last_words() }));
            judged.reason = joined(judged.reason, sequel.words());
            match sequel {
                Sequel::Final(_) => {}
                Sequel::Ask(_) => judged.event = JobEvent::AwaitVerdict,
                Sequel::Again(again) => {
                    judged.event = JobEvent::Requeue;
                    follows.onward = Onward::Retry(again);
                }
            }
        }
        Ok(self.conclude(job, worker, ended, judged, follows, changes))
    }

    /// Attempts of this run that count, with the one that is under way or next.
    pub fn used(&self, job: u32) -> u32 {
        let excused = self.carried.get(&job).map_or(0, |carried| carried.excused);
        self.attempt[job as usize].0.saturating_sub(excused)
    }

    fn handler(&self, job: u32) -> Option<usize> {
        self.handler.get(job as usize)?.checked_sub(1).map(|number| number as usize)
    }

    /// The name of who says what follows its failures.
    pub fn handler_name(&self, job: u32) -> Option<&str> {
        self.handler(job).and_then(|number| self.handlers.get(number)).map(|handler| handler.name.as_str())
    }

    pub fn handlers(&self) -> &[FailureHandler] {
        &self.handlers
    }

    /// Attempts that handlers had granted in this run when the board was made.
    pub const fn retries_granted(&self) -> u64 {
        self.retries_granted
    }

    /// The script that is owed before the attempt that is under way or next.
    pub fn recovery(&self, job: u32) -> Option<&Recovery> {
        self.carried.get(&job)?.recovery.as_ref()
    }

    /// Too much has failed: nothing more is claimed, and what was not begun stays as it is.
    pub fn on_halt(&mut self) {
        self.halted = true;
    }

    pub fn is_halted(&self) -> bool {
        self.halted
    }

    /// Somebody has it go on all the same.
    pub fn on_go_on(&mut self) {
        self.halted = false;
    }

    /// Notes what the next attempt inherits, and says so for the books.
    pub(super) fn carry_on(&mut self, job: u32, onward: Onward) -> Option<Box<Carried>> {
        let before = self.carried.remove(&job).unwrap_or_default();
        self.later.forget(job);
        let carried = match onward {
            Onward::Excused | Onward::ExcusedAlone => Carried {
                recovery: before.recovery,
                excused: before.excused.saturating_add(1),
                ..Carried::default()
            },
            Onward::Retry(again) => Carried {
                not_before: again.not_before,
                delay: again.delay,
                recovery: again.recovery,
                excused: before.excused,
                resources: again.resources,
            },
        };
        self.take_up(job, &carried);
        (carried != Carried::default()).then(|| Box::new(carried))
    }

    /// Lets what is carried over take effect.
    pub(super) fn take_up(&mut self, job: u32, carried: &Carried) {
        if let Some(at) = carried.not_before {
            self.later.set(job, at, carried.delay);
        }
        if let Some(asked) = carried.resources {
            self.ask_for(job, asked);
        }
        if carried.recovery.is_some() || carried.excused > 0 {
            let kept = Carried { not_before: None, delay: None, resources: None, ..carried.clone() };
            self.carried.insert(job, kept);
        }
    }

    /// The job asks for something else from now on; others of its class do not.
    fn ask_for(&mut self, job: u32, asked: Resources) {
        let place = self.demand(job).place.clone();
        let class = self.class_of(asked);
        self.class[job as usize] = class;
        let lane = self.lane_of(class, place);
        self.put_in_lane(job, lane);
    }
}

fn joined(reason: Option<String>, words: Option<&str>) -> Option<String> {
    match (reason, words) {
        (Some(reason), Some(words)) => Some(format!("{reason}; {words}")),
        (reason, words) => reason.or_else(|| words.map(str::to_owned)),
    }
}
