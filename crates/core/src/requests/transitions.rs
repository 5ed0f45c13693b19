//! Status transitions of requests. There is no other way from one status to another.

use windlass_types::requests::RequestStatus::{
    self, Aborted, Active, Completed, Failed, Held, New, Partial, Planning, Queued, Resubmitting, Stopping,
    Submitted,
};

/// A transition that is not in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a request cannot change from {from} to {to}; after {from} comes {}", list_next_statuses(*.from))]
pub struct ForbiddenTransition {
    pub from: RequestStatus,
    pub to: RequestStatus,
}

/// Returns all statuses that may directly follow this one.
pub const fn next_statuses(status: RequestStatus) -> &'static [RequestStatus] {
    match status {
        New => &[Submitted, Aborted],
        Submitted | Resubmitting => &[Queued, Held, Failed, Aborted],
        Queued => &[Planning, Held, Failed, Aborted],
        // To stopping: its run may be at the backend already.
        Planning => &[Active, Stopping, Held, Failed, Aborted],
        // To queued: for its next round.
        Active => &[Queued, Stopping, Partial, Held, Completed, Failed, Aborted],
        // To active: all work completed before the stop; or progress is recorded, and the next round follows.
        Stopping | Partial => &[Resubmitting, Active, Held, Failed, Aborted],
        // Released to its earlier status; or ended, through stopping if some of it may still run.
        Held => &[Submitted, Queued, Active, Resubmitting, Stopping, Failed, Aborted],
        Completed | Failed | Aborted => &[],
    }
}

/// Checks whether the transition is allowed.
pub fn check_transition(from: RequestStatus, to: RequestStatus) -> Result<(), ForbiddenTransition> {
    if next_statuses(from).contains(&to) { Ok(()) } else { Err(ForbiddenTransition { from, to }) }
}

fn list_next_statuses(from: RequestStatus) -> String {
    match next_statuses(from) {
        [] => "nothing".to_owned(),
        next => next.iter().map(|status| status.name()).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// final statuses are final, and no others.
    #[test]
    fn only_final_statuses_have_no_transition() {
        for &status in RequestStatus::ALL {
            assert_eq!(next_statuses(status).is_empty(), status.is_terminal(), "{status}");
        }
    }

    #[test]
    fn every_end_and_held_are_reachable() {
        for &start in RequestStatus::ALL.iter().filter(|status| !status.is_terminal() && **status != New) {
            let mut seen = BTreeSet::from([start]);
            let mut open = vec![start];
            while let Some(status) = open.pop() {
                open.extend(next_statuses(status).iter().filter(|next| seen.insert(**next)));
            }
            for end in [Completed, Failed, Aborted, Held] {
                assert!(seen.contains(&end), "from {start} there is no way to {end}");
            }
        }
    }

    #[test]
    fn unfinished_requests_can_be_held_failed_and_aborted() {
        for &status in RequestStatus::ALL.iter().filter(|status| !status.is_terminal() && **status != New) {
            for end in [Failed, Aborted] {
                assert_eq!(check_transition(status, end), Ok(()), "{status} → {end}");
            }
            assert!(status == Held || check_transition(status, Held).is_ok(), "{status}");
        }
    }

    /// S 6.2: a clean stop, and R-175.
    #[test]
    fn transitions_of_the_specification_exist() {
        let ways: &[&[RequestStatus]] = &[
            &[New, Submitted, Queued, Planning, Active, Completed],
            &[Active, Stopping, Resubmitting, Queued, Planning, Active],
            &[Active, Partial, Held, Resubmitting, Queued],
            &[Active, Partial, Resubmitting, Queued],
        ];
        for way in ways {
            for pair in way.windows(2) {
                assert_eq!(check_transition(pair[0], pair[1]), Ok(()));
            }
        }
    }

    #[test]
    fn rejected_transition_lists_the_valid_ones() {
        assert_eq!(
            check_transition(Queued, Active).unwrap_err().to_string(),
            "a request cannot change from queued to active; after queued comes planning, held, failed, aborted"
        );
        assert_eq!(
            check_transition(Aborted, Queued).unwrap_err().to_string(),
            "a request cannot change from aborted to queued; after aborted comes nothing"
        );
    }
}
