//! Admission order of requests.
//!
//! Urgent requests come first, then by priority. Between equals requestors take turns: the second request of a
//! requestor waits until all other requestors of the same rank have one, counting active requests; then the
//! older one goes first. A request that has waited longer than the configured patience is no longer passed over
//! for fairness, so that none waits forever behind new ones.

use std::collections::HashMap;
use std::time::Duration;
use windlass_types::Timestamp;

#[derive(Clone, Debug)]
pub struct AdmissionSettings {
    /// Maximum number of active runs.
    pub max_active: usize,
    pub fairness_timeout: Duration,
}

impl Default for AdmissionSettings {
    fn default() -> Self {
        Self { max_active: 300, fairness_timeout: Duration::from_hours(24) }
    }
}

/// A request in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionCandidate<'a> {
    pub name: &'a str,
    pub requestor: &'a str,
    pub urgent: bool,
    pub priority: i64,
    pub created_at: Timestamp,
    pub queued_since: Timestamp,
}

/// A position in the queue, in starting order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePosition<'a> {
    pub name: &'a str,
    /// Whether it can start now.
    pub admitted: bool,
}

/// Orders the whole queue. `holders` are the requestors of active runs, one entry for each.
pub fn order_queue<'a>(
    candidates: &[AdmissionCandidate<'a>],
    holders: &[&str],
    settings: &AdmissionSettings,
    now: Timestamp,
) -> Vec<QueuePosition<'a>> {
    let mut order: Vec<&AdmissionCandidate<'a>> = candidates.iter().collect();
    order.sort_by_key(|one| (!one.urgent, std::cmp::Reverse(one.priority), one.created_at, one.name));
    let mut ranked: Vec<(u64, &AdmissionCandidate<'a>)> = Vec::with_capacity(order.len());
    for equals in order.chunk_by(|a, b| (a.urgent, a.priority) == (b.urgent, b.priority)) {
        let mut have: HashMap<&str, u64> = HashMap::new();
        for holder in holders {
            *have.entry(holder).or_default() += 1;
        }
        for &one in equals {
            let has = have.entry(one.requestor).or_default();
            let failed_job = now.since(one.queued_since) < settings.fairness_timeout;
            ranked.push((if failed_job { *has } else { 0 }, one));
            *has += 1;
        }
    }
    ranked.sort_by_key(|(rank, one)| {
        (!one.urgent, std::cmp::Reverse(one.priority), *rank, one.created_at, one.name)
    });
    let places = settings.max_active.saturating_sub(holders.len());
    ranked
        .iter()
        .enumerate()
        .map(|(place, (_, one))| QueuePosition { name: one.name, admitted: place < places })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000_000_000);

    fn one<'a>(
        name: &'a str,
        requestor: &'a str,
        priority: i64,
        urgent: bool,
        age: u64,
    ) -> AdmissionCandidate<'a> {
        let created_at = Timestamp(NOW.0 - i64::try_from(age).unwrap() * 1_000_000);
        AdmissionCandidate { name, requestor, urgent, priority, created_at, queued_since: created_at }
    }

    fn order(candidates: &[AdmissionCandidate<'_>], holders: &[&str]) -> Vec<String> {
        let turns = order_queue(candidates, holders, &AdmissionSettings::default(), NOW);
        turns.iter().map(|turn| turn.name.to_owned()).collect()
    }

    ///
    #[test]
    fn queue_is_ordered_by_urgency_priority_and_age() {
        let queue = [
            one("old", "a", 100, false, 50),
            one("young", "b", 100, false, 10),
            one("high", "a", 200, false, 1),
            one("urgent", "a", 1, true, 1),
        ];
        assert_eq!(order(&queue, &[]), ["urgent", "high", "old", "young"]);
    }

    #[test]
    fn requestors_of_equal_priority_take_turns() {
        let queue = [
            one("a1", "a", 100, false, 90),
            one("a2", "a", 100, false, 80),
            one("a3", "a", 100, false, 70),
            one("b1", "b", 100, false, 60),
            one("c1", "c", 100, false, 50),
        ];
        assert_eq!(order(&queue, &[]), ["a1", "b1", "c1", "a2", "a3"]);
        assert_eq!(order(&queue, &["a", "b"]), ["c1", "a1", "b1", "a2", "a3"], "active requests count");
    }

    #[test]
    fn no_request_waits_forever() {
        let queue = [one("a1", "a", 100, false, 90_000), one("b1", "b", 100, false, 5)];
        assert_eq!(order(&queue, &["a", "a", "a"]), ["a1", "b1"]);
    }

    #[test]
    fn free_slots_are_filled_at_once() {
        let queue_of = [one("x", "a", 3, false, 1), one("y", "b", 2, false, 1), one("z", "c", 1, false, 1)];
        for (max_active, held, expected) in [(5, 0, 3), (5, 3, 2), (5, 5, 0), (0, 0, 0), (2, 7, 0)] {
            let settings = AdmissionSettings { max_active, ..AdmissionSettings::default() };
            let holders = vec!["q"; held];
            let turns = order_queue(&queue_of, &holders, &settings, NOW);
            assert_eq!(turns.iter().filter(|turn| turn.admitted).count(), expected);
            assert!(turns.is_sorted_by_key(|turn| !turn.admitted), "the first ones, never others");
        }
    }
}
