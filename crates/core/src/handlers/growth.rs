//! What the next attempt asks for: more, but no more than the rule allows and a worker can give, and never less.

use super::{Failure, Situation};
use crate::room::Room;
use std::fmt::Display;
use windlass_types::settings::{FailureCause, FailureRule};
use windlass_types::{Bytes, FailureClass, Growth, Quantity, Resources, format_duration};

pub(super) struct Grown {
    /// `None`: as before.
    pub(super) resources: Option<Resources>,
    /// In words: `memory 2 GiB → 3 GiB`.
    pub(super) changes: Vec<String>,
    /// Why another attempt would end as this one did.
    pub(super) stuck: Option<String>,
}

/// What ends the growth of something.
struct Cap<Q> {
    most: Q,
    /// Whose limit it is.
    whose: &'static str,
}

pub(super) fn grow(rule: &FailureRule, failure: &Failure<'_>, situation: &Situation<'_>) -> Grown {
    let mut grown = Grown { resources: None, changes: Vec::new(), stuck: None };
    let Some(asked) = situation.asked else { return grown };
    let mut next = asked;
    let room = Room { workers: situation.workers, asked };

    if let Some(growth) = rule.memory {
        let cap = lower(rule.max_memory, "max_memory", room.memory());
        next.memory = grown.one("memory", growth, asked.memory, cap.as_ref(), Bytes::to_string);
        if next.memory == asked.memory && ran_out_of(failure, FailureCause::OutOfMemory, FailureClass::Memory)
        {
            grown.stuck = Some(no_more("memory", asked.memory, cap));
        }
    }
    if let (Some(growth), Some(runtime)) = (rule.runtime, asked.runtime) {
        let cap = lower(rule.max_runtime, "max_runtime", situation.longest);
        let longer = grown.one("runtime", growth, runtime, cap.as_ref(), |time| format_duration(*time));
        next.runtime = Some(longer);
        if longer == runtime && ran_out_of(failure, FailureCause::Timeout, FailureClass::Timeout) {
            grown.stuck = Some(no_more("runtime", format_duration(runtime), cap));
        }
    }
    if let Some(growth) = rule.cpus {
        let cap = lower(rule.max_cpus, "max_cpus", room.cpus(next.memory));
        next.cpus = grown.one("cpus", growth, asked.cpus, cap.as_ref(), u32::to_string);
    }
    grown.resources = (next != asked).then_some(next);
    grown
}

impl Grown {
    /// Grows one thing up to its cap, and notes it.
    fn one<Q: Quantity>(
        &mut self,
        what: &str,
        growth: Growth<Q>,
        asked: Q,
        cap: Option<&Cap<Q>>,
        shown: impl Fn(&Q) -> String,
    ) -> Q {
        let wanted = growth.grow(asked);
        let next = cap.map_or(wanted, |cap| wanted.min(cap.most)).max(asked);
        if next > asked {
            let change = format!("{what} {} → {}", shown(&asked), shown(&next));
            self.changes.push(match cap.filter(|_| next < wanted) {
                Some(cap) => format!("{change} ({})", cap.whose),
                None => change,
            });
        }
        next
    }
}

/// The lower one of what the rule says and what workers have.
fn lower<Q: Quantity>(rule: Option<Q>, field: &'static str, workers: Option<Q>) -> Option<Cap<Q>> {
    let rule = rule.map(|most| Cap { most, whose: field });
    let workers = workers.map(|most| Cap { most, whose: "all that a worker has" });
    match (rule, workers) {
        (Some(rule), Some(workers)) if workers.most < rule.most => Some(workers),
        (rule, workers) => rule.or(workers),
    }
}

fn ran_out_of(failure: &Failure<'_>, cause: FailureCause, class: FailureClass) -> bool {
    failure.cause == Some(cause) || failure.class == class
}

fn no_more<Q>(what: &str, asked: impl Display, cap: Option<Cap<Q>>) -> String {
    let whose = cap.map_or("its limit", |cap| cap.whose);
    format!("its {what} of {asked} cannot grow ({whose})")
}
