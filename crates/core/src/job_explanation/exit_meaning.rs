//! Meanings of exit codes and signals.

use super::AttemptSummary;
use crate::attempt_outcome::describe_memory_limit;
use crate::classify::FailureClassifier;
use windlass_types::worker_messages::return_code;
use windlass_types::{JobStatus, Resources, format_duration};

/// Describes in one sentence how a failed attempt ended.
pub(super) fn end_headline(outcome: &AttemptSummary, asked: Option<&Resources>) -> String {
    let code = outcome.return_code;
    let limit = asked.and_then(|asked| asked.runtime).map(format_duration);
    match () {
        () if outcome.out_of_memory => match asked {
            Some(asked) => format!("out of memory: {}", describe_memory_limit(asked)),
            None => "out of memory".to_owned(),
        },
        () if code == return_code::TIMEOUT && outcome.status == JobStatus::Terminated => match limit {
            Some(limit) => format!("ended because its time limit of {limit} was reached"),
            None => "ended because its time limit was reached".to_owned(),
        },
        () if code == return_code::ORPHANED => match eviction_reason(outcome) {
            Some(why) => format!("lost: {why}"),
            None => "lost: its worker died while it ran".to_owned(),
        },
        () if is_windlass_code(outcome) => outcome.reason.clone().unwrap_or_default(),
        () if outcome.signal.is_some() || code > 128 => match ending_signal(outcome) {
            Some((number, name, meaning)) => {
                let verb = if outcome.signal.is_some() {
                    "ended by signal"
                } else {
                    "failed with the code of signal"
                };
                format!("{verb} {number} ({name}): {meaning}")
            }
            None => format!("failed with exit code {code}"),
        },
        () => match exit_code_meaning(code) {
            Some(meaning) => format!("failed with exit code {code}: {meaning}"),
            None => format!("failed with exit code {code}"),
        },
    }
}

/// Short, for one line of a chain.
pub(super) fn end_note(outcome: &AttemptSummary) -> String {
    let code = outcome.return_code;
    match () {
        () if outcome.out_of_memory => "failed: out of memory".to_owned(),
        () if outcome.status == JobStatus::Terminated && code == return_code::TIMEOUT => {
            "failed: time limit reached".to_owned()
        }
        () if code == return_code::ORPHANED => match eviction_reason(outcome) {
            Some(why) => format!("was lost: {why}"),
            None => "lost its worker".to_owned(),
        },
        () => match outcome.signal.and_then(signal_meaning) {
            Some((name, _)) => format!("was ended by {name}"),
            None => format!("failed with exit code {code}"),
        },
    }
}

/// Returns the end of the allocation, if the attempt was lost because of it.
fn eviction_reason(outcome: &AttemptSummary) -> Option<&str> {
    let why = outcome.reason.as_deref()?.strip_prefix("orphaned: ")?;
    why.starts_with("allocation ").then_some(why)
}

/// Whether Windlass set the exit code itself, so that the reason is more precise.
fn is_windlass_code(outcome: &AttemptSummary) -> bool {
    let reason = outcome.reason.as_deref().unwrap_or_default();
    reason.starts_with("ended with 0 but did not write") || reason.starts_with("could not be started")
}

fn ending_signal(outcome: &AttemptSummary) -> Option<(i32, &'static str, &'static str)> {
    let number = outcome.signal.unwrap_or(outcome.return_code - 128);
    signal_meaning(number).map(|(name, meaning)| (number, name, meaning))
}

/// Returns the meaning of exit codes that the rules do not cover. The rules cover those on which shells and
/// sysexits.h agree.
fn exit_code_meaning(code: i32) -> Option<&'static str> {
    match code {
        2 => Some("often an invalid option or argument"),
        255 => Some("general failure; ssh returns this when it cannot connect"),
        _ => FailureClassifier::standard().rule_for_exit_code(code).map(|rule| rule.means.as_str()),
    }
}

fn signal_meaning(number: i32) -> Option<(&'static str, &'static str)> {
    Some(match number {
        1 => ("SIGHUP", "its terminal closed or its parent ended"),
        2 => ("SIGINT", "interrupted with Ctrl-C"),
        3 => ("SIGQUIT", "interrupted with Ctrl-\\"),
        4 => ("SIGILL", "the program was built for another processor"),
        6 => ("SIGABRT", "the program aborted itself"),
        7 => ("SIGBUS", "often a file that shrank while it was read, or a full /dev/shm"),
        8 => ("SIGFPE", "an arithmetic error, for example a division by zero"),
        9 => ("SIGKILL", "killed, but not by windlass; most often the machine ran out of memory"),
        11 => ("SIGSEGV", "the program crashed: it accessed invalid memory"),
        13 => ("SIGPIPE", "the reader of its output was gone"),
        14 => ("SIGALRM", "a timer that it had set itself expired"),
        15 => ("SIGTERM", "it was asked to end"),
        24 => ("SIGXCPU", "its CPU time limit was reached"),
        25 => ("SIGXFSZ", "it wrote a file larger than its limit"),
        31 => ("SIGSYS", "it made a forbidden system call"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use windlass_types::{Attempt, Bytes, Timestamp};

    fn outcome(
        status: JobStatus,
        return_code: i32,
        signal: Option<i32>,
        reason: Option<&str>,
    ) -> AttemptSummary {
        AttemptSummary {
            attempt: Attempt(1),
            status,
            return_code,
            signal,
            out_of_memory: false,
            reason: reason.map(str::to_owned),
            ended_at: Timestamp(0),
            wall: Duration::from_secs(1),
            peak_memory: None,
        }
    }

    #[test]
    fn exit_codes_and_signals_are_explained() {
        use JobStatus::{Failed, Terminated};
        let asked = Resources {
            memory: Bytes(2 << 30),
            runtime: Some(Duration::from_mins(90)),
            ..Resources::DEFAULT
        };
        let of =
            |status, code, signal, reason| end_headline(&outcome(status, code, signal, reason), Some(&asked));
        for (said, expected) in [
            (of(Failed, 1, None, None), "failed with exit code 1"),
            (of(Failed, 127, None, None), "failed with exit code 127: the program was not found"),
            (
                of(Failed, 126, None, None),
                "failed with exit code 126: the program was found but cannot be executed",
            ),
            (
                of(Failed, 139, Some(11), None),
                "ended by signal 11 (SIGSEGV): the program crashed: it accessed invalid memory",
            ),
            (
                of(Failed, 139, None, None),
                "failed with the code of signal 11 (SIGSEGV): the program crashed: it accessed invalid memory",
            ),
            (
                of(Failed, 137, Some(9), None),
                "ended by signal 9 (SIGKILL): killed, but not by windlass; most often the machine ran out of memory",
            ),
            (of(Failed, 143, Some(15), None), "ended by signal 15 (SIGTERM): it was asked to end"),
            (of(Failed, 200, None, None), "failed with exit code 200"),
            (of(Failed, -128, None, None), "lost: its worker died while it ran"),
            (of(Terminated, 152, Some(9), None), "ended because its time limit of 1h 30m was reached"),
            (
                of(Failed, 1, None, Some("ended with 0 but did not write out.csv")),
                "ended with 0 but did not write out.csv",
            ),
        ] {
            assert_eq!(said, expected);
        }
        let killed = AttemptSummary { out_of_memory: true, ..outcome(Failed, 137, Some(9), None) };
        assert_eq!(end_headline(&killed, Some(&asked)), "out of memory: used more than the requested 2 GiB");
    }
}
