//! Resources of the next attempt: never less than before, limited by the rule and by the workers.

use super::{FailedAttemptFacts, RetryContext};
use crate::growth_limits::GrowthLimits;
use std::fmt::Display;
use windlass_types::settings::{FailureCause, FailureRule};
use windlass_types::{Bytes, FailureClass, GrowableQuantity, ResourceGrowth, Resources, format_duration};

pub(super) struct GrownResources {
    /// `None`: unchanged.
    pub(super) resources: Option<Resources>,
    /// In words: `memory 2 GiB → 3 GiB`.
    pub(super) changes: Vec<String>,
    /// Why another attempt would end in the same way.
    pub(super) blocked_reason: Option<String>,
}

/// An upper limit of growth.
struct GrowthCap<Q> {
    max: Q,
    /// What sets the limit.
    source: &'static str,
}

pub(super) fn grow_resources(
    rule: &FailureRule,
    failure: &FailedAttemptFacts<'_>,
    situation: &RetryContext<'_>,
) -> GrownResources {
    let mut grown = GrownResources { resources: None, changes: Vec::new(), blocked_reason: None };
    let Some(asked) = situation.asked else { return grown };
    let mut next = asked;
    let room = GrowthLimits { workers: situation.workers, asked };

    if let Some(growth) = rule.memory {
        let cap = lower_cap(rule.max_memory, "max_memory", room.max_memory());
        next.memory = grown.grow_one("memory", growth, asked.memory, cap.as_ref(), Bytes::to_string);
        if next.memory == asked.memory && ran_out_of(failure, FailureCause::OutOfMemory, FailureClass::Memory)
        {
            grown.blocked_reason = Some(cannot_grow_message("memory", asked.memory, cap));
        }
    }
    if let (Some(growth), Some(runtime)) = (rule.runtime, asked.runtime) {
        let cap = lower_cap(rule.max_runtime, "max_runtime", situation.max_worker_lifetime);
        let longer = grown.grow_one("runtime", growth, runtime, cap.as_ref(), |time| format_duration(*time));
        next.runtime = Some(longer);
        if longer == runtime && ran_out_of(failure, FailureCause::Timeout, FailureClass::Timeout) {
            grown.blocked_reason = Some(cannot_grow_message("runtime", format_duration(runtime), cap));
        }
    }
    if let Some(growth) = rule.cpus {
        let cap = lower_cap(rule.max_cpus, "max_cpus", room.max_cpus(next.memory));
        next.cpus = grown.grow_one("cpus", growth, asked.cpus, cap.as_ref(), u32::to_string);
    }
    grown.resources = (next != asked).then_some(next);
    grown
}

impl GrownResources {
    /// Grows one resource up to its cap and records the change.
    fn grow_one<Q: GrowableQuantity>(
        &mut self,
        what: &str,
        growth: ResourceGrowth<Q>,
        asked: Q,
        cap: Option<&GrowthCap<Q>>,
        shown: impl Fn(&Q) -> String,
    ) -> Q {
        let wanted = growth.grow(asked);
        let next = cap.map_or(wanted, |cap| wanted.min(cap.max)).max(asked);
        if next > asked {
            let change = format!("{what} {} → {}", shown(&asked), shown(&next));
            self.changes.push(match cap.filter(|_| next < wanted) {
                Some(cap) => format!("{change} ({})", cap.source),
                None => change,
            });
        }
        next
    }
}

/// Returns the lower of the limits of the rule and of the workers.
fn lower_cap<Q: GrowableQuantity>(
    rule: Option<Q>,
    field: &'static str,
    workers: Option<Q>,
) -> Option<GrowthCap<Q>> {
    let rule = rule.map(|most| GrowthCap { max: most, source: field });
    let workers = workers.map(|most| GrowthCap { max: most, source: "largest worker" });
    match (rule, workers) {
        (Some(rule), Some(workers)) if workers.max < rule.max => Some(workers),
        (rule, workers) => rule.or(workers),
    }
}

fn ran_out_of(failure: &FailedAttemptFacts<'_>, cause: FailureCause, class: FailureClass) -> bool {
    failure.cause == Some(cause) || failure.class == class
}

fn cannot_grow_message<Q>(what: &str, asked: impl Display, cap: Option<GrowthCap<Q>>) -> String {
    let whose = cap.map_or("its limit", |cap| cap.source);
    format!("its {what} of {asked} cannot grow ({whose})")
}
