//! Restrictions for agents that do not apply to persons: the policy of a workflow, and checks against evasion.

use super::{CommandSettings, CommandTarget};
use windlass_types::JobStatus;
use windlass_types::failure_commands::{FailureCommand, FailureCommandKind};

/// Minimum number of letters of a quote that is not a whole line.
const MIN_QUOTE_LETTERS: usize = 10;

pub(super) fn policy_violation(
    order: &FailureCommand,
    settings: &CommandSettings<'_>,
    case: &CommandTarget<'_>,
) -> Option<String> {
    if !settings.uses_pending_failed {
        return Some("the workflow does not ask for decisions (`use_pending_failed`)".to_owned());
    }
    if case.status != JobStatus::PendingFailed {
        return Some(format!("the job is `{}`: agents decide only about `pending_failed` jobs", case.status));
    }
    let most = settings.policy.max_agent_retries.filter(|_| order.kind == FailureCommandKind::Retry);
    if let Some(most) = most.filter(|most| case.agent_retries >= *most) {
        return Some(format!("agents have retried it {} times, the maximum is {most}", case.agent_retries));
    }
    if settings.policy.require_evidence && order.evidence.iter().all(|line| line.trim().is_empty()) {
        return Some("the workflow requires evidence: quote lines of the job's log".to_owned());
    }
    let said = case.log_tail?;
    let missing = order.evidence.iter().find(|quote| !quote.trim().is_empty() && !is_quoted(&[said], quote));
    missing.map(|quote| {
        format!(
            "the log does not contain `{}`: quote whole lines, or at least {MIN_QUOTE_LETTERS} letters of one",
            quote.trim()
        )
    })
}

/// Whether each line of a quote is in the log: as a whole line, or as a part that is too long for a
/// coincidence.
pub fn is_quoted(said: &[&str], quote: &str) -> bool {
    let mut lines = quote.lines().map(str::trim).filter(|line| !line.is_empty()).peekable();
    let is_long = |line: &str| line.chars().count() >= MIN_QUOTE_LETTERS;
    let stands = |quote: &str, line: &str| line.trim() == quote || (is_long(quote) && line.contains(quote));
    let was_said = |quote| said.iter().flat_map(|text| text.lines()).any(|line| stands(quote, line));
    lines.peek().is_some() && lines.all(was_said)
}

/// Why an agent may not rerun a job as part of a reset or recovery. `last`: the latest decision about it.
pub fn agent_rerun_refusal(
    asks: bool,
    status: JobStatus,
    last: Option<FailureCommandKind>,
) -> Option<&'static str> {
    match status {
        JobStatus::PendingFailed => Some("it waits for a decision"),
        JobStatus::Failed | JobStatus::Terminated
            if asks && matches!(last, Some(FailureCommandKind::Fail | FailureCommandKind::Ignore)) =>
        {
            Some("already decided; only a person can retry it")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_evidence_must_be_lines_or_long() {
        let said = ["reading part 7\n  fatal: out of cheese\ne\n", "done: 3 of 9\n"];
        let table = [
            ("fatal: out of cheese", true),
            ("  fatal: out of cheese  ", true),
            ("out of cheese", true),
            ("of cheese", false),
            ("a", false),
            ("e", true),
            ("done: 3 of 9", true),
            ("reading part 7\nfatal: out of cheese\n", true),
            ("reading part 7\nfatal: out of milk", false),
            ("7\n  fatal", false),
            ("invented line", false),
            ("", false),
            (" \n ", false),
        ];
        for (quote, expected) in table {
            assert_eq!(is_quoted(&said, quote), expected, "{quote:?}");
        }
    }

    #[test]
    fn agent_cannot_rerun_decided_or_pending_failures() {
        use JobStatus as S;
        let kept = |asks, last| -> Vec<S> {
            S::ALL.into_iter().filter(|status| agent_rerun_refusal(asks, *status, last).is_some()).collect()
        };
        assert_eq!(kept(true, None), [S::PendingFailed]);
        assert_eq!(kept(true, Some(FailureCommandKind::Retry)), [S::PendingFailed]);
        assert_eq!(kept(true, Some(FailureCommandKind::Fail)), [S::Failed, S::Terminated, S::PendingFailed]);
        assert_eq!(
            kept(true, Some(FailureCommandKind::Ignore)),
            [S::Failed, S::Terminated, S::PendingFailed]
        );
        assert_eq!(kept(false, Some(FailureCommandKind::Fail)), [S::PendingFailed]);
    }
}
