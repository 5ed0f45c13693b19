//! The jobs of a work unit by their role: number of retries, delays, and commands.

use std::time::Duration;
use windlass_core::failure_handlers::RequestRetryPolicy;
use windlass_core::round_plan;
use windlass_types::requests::NodeRole;
use windlass_types::settings::FailureHandler;
use windlass_types::{Bytes, Ratio};

/// How failures are retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoleRetrySettings {
    /// Retries after the first attempt, by role.
    pub(crate) counts: round_plan::RetriesByRole,
    /// Delay before the second attempt; doubled before each further one (R-146).
    pub(crate) cool_off: Duration,
}

impl RoleRetrySettings {
    /// Maximum delay (DESIGN 6.9).
    const MAX_COOL_OFF: Duration = Duration::from_mins(10);

    const fn count_for(&self, role: NodeRole) -> u32 {
        match role {
            NodeRole::Landing => self.counts.landing,
            NodeRole::Processing => self.counts.processing,
            NodeRole::Merge => self.counts.merge,
            NodeRole::Cleanup => self.counts.cleanup,
        }
    }

    /// The failure handler for jobs of this role. `max_memory` is the most that a job may request.
    pub(crate) fn failure_handler(&self, role: NodeRole, max_memory: Bytes) -> FailureHandler {
        let care = RequestRetryPolicy {
            retries: self.count_for(role),
            initial_delay: self.cool_off,
            max_delay: Self::MAX_COOL_OFF,
            memory_growth: Ratio::from_millionths(1_500_000),
            max_memory,
            max_runtime: RequestRetryPolicy::MAX_RUNTIME,
        };
        FailureHandler { name: handler_name(role), rules: care.failure_rules() }
    }
}

/// The handler of a role, whose name tells the role of a job.
fn handler_name(role: NodeRole) -> String {
    role.name().to_lowercase()
}

/// The role of jobs with this handler. Jobs of runs from before the role was stored count as work.
pub(super) fn role_of_handler(handler: &str) -> NodeRole {
    let known = NodeRole::ALL.iter().copied().find(|role| handler_name(*role) == handler);
    known.unwrap_or(NodeRole::Processing)
}

/// Quotes a word for `sh`.
pub(crate) fn quote_shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use windlass_types::FailureClass;

    #[test]
    fn quoted_words_survive_shell() {
        for word in ["plain/path-1.json", "", "two words", "it's", "$(id) `id` \\ \" ; &", "-n", "a\nb"] {
            let text = Command::new("sh")
                .arg("-c")
                .arg(format!("printf %s {}", quote_shell_word(word)))
                .output()
                .unwrap();
            assert_eq!(String::from_utf8(text.stdout).unwrap(), word);
        }
    }

    #[test]
    fn failure_handler_name_gives_node_role() {
        let retries =
            RoleRetrySettings { counts: round_plan::RetriesByRole::default(), cool_off: Duration::ZERO };
        for role in NodeRole::ALL {
            assert_eq!(role_of_handler(&retries.failure_handler(*role, Bytes(0)).name), *role);
        }
        assert_eq!(role_of_handler(""), NodeRole::Processing);
    }

    /// R-087, R-144, R-146, R-147.
    #[test]
    fn failure_handler_rules_follow_class() {
        let retries = RoleRetrySettings {
            counts: round_plan::RetriesByRole::default(),
            cool_off: Duration::from_mins(1),
        };
        let handler = retries.failure_handler(NodeRole::Processing, Bytes(3 << 30));
        let of = |class| handler.rules.iter().find(|rule| rule.classes.contains(&class));
        for class in [FailureClass::Permanent, FailureClass::Data] {
            assert_eq!(of(class), None, "{class:?}");
        }
        let memory = of(FailureClass::Memory).unwrap();
        assert_eq!((memory.max_memory, memory.max_retries), (Some(Bytes(3 << 30)), 4));
        let passing = of(FailureClass::Transient).unwrap();
        assert_eq!(
            (passing.delay, passing.backoff),
            (Some(Duration::from_mins(1)), Some(Ratio::from_millionths(2_000_000)))
        );
        for (role, attempts) in [(NodeRole::Landing, 4), (NodeRole::Merge, 3), (NodeRole::Cleanup, 2)] {
            let handler = retries.failure_handler(role, Bytes(0));
            assert!(handler.rules.iter().all(|rule| rule.max_retries == attempts), "{role}");
        }
    }
}
