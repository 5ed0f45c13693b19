//! Job states: one table of transitions.
//!
//! ```text
//!                 ┌────────────┐ unblock   ┌───────┐ claim  ┌─────────┐ start  ┌─────────┐
//!  uninitialized ─┤  blocked   ├──────────▶│ ready ├───────▶│ pending ├───────▶│ running │
//!        ▲        └─────┬──────┘           └───▲───┘        └────┬────┘        └────┬────┘
//!        │              │ cancel               │ requeue         └────────┬─────────┘
//!        │ reset        ▼                      │                          ▼
//!        └────────── canceled                  └── failed, terminated, pending_failed, completed, canceled
//! ```

use windlass_types::JobStatus;

/// An event that changes the state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum JobStateEvent {
    /// It has a dependency that has not ended.
    Block,
    /// All dependencies have ended, with results that let it run.
    Unblock,
    /// A worker claims it.
    Claim,
    /// The worker started it.
    Start,
    /// Exit code 0 and all outputs present.
    Complete,
    /// Any other end by itself, or the decision to fail a pending failure.
    Fail,
    /// Ended by its time limit.
    Terminate,
    /// Canceled by a user, or because a dependency failed.
    Cancel,
    /// It failed and waits for a decision.
    AwaitDecision,
    /// To run again, or for the first time after a claim that never started.
    Requeue,
    /// Discards its results; initialization starts over.
    Reset,
    /// Excludes it from the workflow.
    Disable,
}

impl JobStateEvent {
    pub const ALL: [Self; 12] = [
        Self::Block,
        Self::Unblock,
        Self::Claim,
        Self::Start,
        Self::Complete,
        Self::Fail,
        Self::Terminate,
        Self::Cancel,
        Self::AwaitDecision,
        Self::Requeue,
        Self::Reset,
        Self::Disable,
    ];
}

/// Returns the next state, or `None` if the event does not apply in this state (a stale or duplicate report).
pub fn next_status(from: JobStatus, event: JobStateEvent) -> Option<JobStatus> {
    let (sources, to) = transition_table(event);
    sources.contains(&from).then_some(to)
}

/// Returns the states in which an event applies, and the state that follows.
const fn transition_table(event: JobStateEvent) -> (&'static [JobStatus], JobStatus) {
    use JobStatus::{
        Blocked, Canceled, Completed, Disabled, Failed, Pending, PendingFailed, Ready, Running, Terminated,
        Uninitialized,
    };
    match event {
        JobStateEvent::Block => (&[Uninitialized, Ready], Blocked),
        JobStateEvent::Unblock => (&[Uninitialized, Blocked], Ready),
        JobStateEvent::Claim => (&[Ready], Pending),
        JobStateEvent::Start => (&[Pending], Running),
        JobStateEvent::Complete => (&[Pending, Running], Completed),
        JobStateEvent::Fail => (&[Pending, Running, PendingFailed], Failed),
        JobStateEvent::Terminate => (&[Pending, Running], Terminated),
        JobStateEvent::Cancel => {
            (&[Uninitialized, Blocked, Ready, Pending, Running, PendingFailed], Canceled)
        }
        JobStateEvent::AwaitDecision => (&[Pending, Running], PendingFailed),
        JobStateEvent::Requeue => (&[Pending, Running, Failed, Terminated, PendingFailed], Ready),
        JobStateEvent::Reset => (
            &[Blocked, Ready, Completed, Failed, Canceled, Terminated, Disabled, PendingFailed],
            Uninitialized,
        ),
        JobStateEvent::Disable => (&[Uninitialized, Blocked, Ready], Disabled),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use JobStatus as S;

    /// The whole table, written independently by hand: a row per state, a column per event, `-` where the event
    /// does not apply. The letters are the states: Uninitialized Blocked Ready Pending (R)unning→`N` Completed
    /// Failed c`X`anceled Terminated Disabled pendin`G`_failed.
    const TABLE: [(S, &str); 11] = [
        //                    Block Unblock Claim Start Complete Fail Terminate Cancel AwaitVerdict Requeue Reset Disable
        (S::Uninitialized, "BR-----X---D"),
        (S::Blocked, "-R-----X--UD"),
        (S::Ready, "B-P----X--UD"),
        (S::Pending, "---NCFTXGR--"),
        (S::Running, "----CFTXGR--"),
        (S::Completed, "----------U-"),
        (S::Failed, "---------RU-"),
        (S::Canceled, "----------U-"),
        (S::Terminated, "---------RU-"),
        (S::Disabled, "----------U-"),
        (S::PendingFailed, "-----F-X-RU-"),
    ];

    fn letter(status: S) -> char {
        match status {
            S::Uninitialized => 'U',
            S::Blocked => 'B',
            S::Ready => 'R',
            S::Pending => 'P',
            S::Running => 'N',
            S::Completed => 'C',
            S::Failed => 'F',
            S::Canceled => 'X',
            S::Terminated => 'T',
            S::Disabled => 'D',
            S::PendingFailed => 'G',
        }
    }

    #[test]
    fn state_table_covers_every_state_and_event() {
        assert_eq!(TABLE.map(|(s, _)| s), S::ALL, "a row per state, in order");
        for (from, row) in TABLE {
            assert_eq!(row.len(), JobStateEvent::ALL.len(), "a column per event: {from}");
            for (event, expected) in JobStateEvent::ALL.into_iter().zip(row.chars()) {
                let got = next_status(from, event).map_or('-', letter);
                assert_eq!(got, expected, "{from} on {event:?}");
            }
        }
    }

    #[test]
    fn states_are_reachable_and_open_states_can_be_left() {
        for status in S::ALL {
            let reached = status == S::Uninitialized
                || S::ALL
                    .into_iter()
                    .any(|from| JobStateEvent::ALL.into_iter().any(|e| next_status(from, e) == Some(status)));
            assert!(reached, "{status} is never reached");
            assert!(
                JobStateEvent::ALL.into_iter().any(|e| next_status(status, e).is_some()),
                "{status} is never left"
            );
        }
    }

    #[test]
    fn ended_job_changes_only_by_reset_or_retry() {
        for status in [S::Completed, S::Failed, S::Canceled, S::Terminated] {
            for event in JobStateEvent::ALL {
                if next_status(status, event).is_some() {
                    assert!(
                        matches!(event, JobStateEvent::Reset | JobStateEvent::Requeue),
                        "{status} on {event:?}"
                    );
                }
            }
        }
        assert_eq!(
            next_status(S::Completed, JobStateEvent::Requeue),
            None,
            "a completed job never runs again"
        );
    }
}
