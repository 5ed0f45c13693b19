//! Why a Slurm job waits, in plain words; and whether waiting helps.

/// An explained Slurm reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingReason {
    pub text: &'static str,
    /// Whether it waits until a person changes something.
    pub needs_human: bool,
}

/// By the whole word.
const KNOWN_REASONS: &[(&str, &str, bool)] = &[
    ("Priority", "others are before it in the queue", false),
    ("Resources", "it is next, and the nodes that it requests are in use", false),
    ("BeginTime", "it may not start yet; after a requeue Slurm waits for up to two minutes", false),
    ("Cleaning", "its last run is being cleaned up", false),
    ("Dependency", "another job has to end first", false),
    ("Licenses", "all licenses that it requests are in use", false),
    ("NodeDown", "a node that it needs is down", false),
    ("ReqNodeNotAvail", "nodes that it requests are down, drained or reserved", false),
    ("Reservation", "its reservation has not begun", false),
    ("JobArrayTaskLimit", "the maximum number of tasks of its array is running", false),
    ("Prolog", "its nodes are being prepared", false),
    ("Configuring", "its nodes are being started", false),
    ("FrontEndDown", "no front end of the cluster is up", false),
    ("SchedDefer", "Slurm has deferred scheduling", false),
    ("PartitionDown", "its partition is down: it accepts jobs but starts none", true),
    ("PartitionInactive", "its partition is inactive: ask the administrators, or use another one", true),
    (
        "PartitionTimeLimit",
        "it requests more time than its partition allows, so it never starts: reduce the walltime, or use another partition",
        true,
    ),
    (
        "PartitionNodeLimit",
        "it requests more nodes than its partition allows, or nodes that are down: reduce `nodes`, or use another partition",
        true,
    ),
    (
        "PartitionConfig",
        "no node of its partition has the requested resources, so it never starts: request less, or use another partition",
        true,
    ),
    ("BadConstraints", "no node has the requested resources: see the constraint and the partition", true),
    ("DependencyNeverSatisfied", "a job that it depends on has failed, so it never starts: cancel it", true),
    ("JobHeldAdmin", "an administrator holds it: ask the administrators", true),
    ("JobHeldUser", "a user holds it: `scontrol release` releases it", true),
    ("InvalidAccount", "its account is unknown, or may not be used: see `account` of the scheduler", true),
    ("InvalidQOS", "its quality of service is unknown: see `qos` of the scheduler", true),
    ("AccountNotAllowed", "its account may not use its partition", true),
    ("QOSNotAllowed", "its quality of service may not be used there", true),
    ("ReservationDeleted", "its reservation is gone: see `extra` of the scheduler", true),
    ("ReservationInvalid", "its reservation is unknown: see `extra` of the scheduler", true),
    ("NonZeroExitCode", "its script ended with an error", true),
    ("JobLaunchFailure", "Slurm could not start it: see the cluster's log and `scontrol show job`", true),
    ("launch", "Slurm could not start it, and holds it: `scontrol release` retries", true),
];

/// By prefix: there are dozens of each, one for each limited resource.
const REASON_PREFIXES: &[(&str, &str, bool)] = &[
    (
        "QOSJobLimit",
        "the maximum number of your jobs for this quality of service is running; it starts when one has ended",
        false,
    ),
    (
        "QOSMaxJobs",
        "the maximum number of your jobs for this quality of service is running; it starts when one has ended",
        false,
    ),
    (
        "AssocMaxJobs",
        "the maximum number of jobs of your account is running; it starts when one has ended",
        false,
    ),
    (
        "AssocGrp",
        "a limit of your account is reached: it starts when resources are free, or never if it requests more than the limit",
        true,
    ),
    ("AssocMax", "it requests more than your account allows for one job, or one user", true),
    (
        "QOSGrp",
        "a limit of this quality of service is reached: it starts when resources are free, or never if it requests more than the limit",
        true,
    ),
    ("QOSMax", "it requests more than this quality of service allows for one job, or one user", true),
    ("QOSMin", "it requests less than this quality of service requires", true),
    ("QOS", "a limit of its quality of service is reached", true),
    ("Assoc", "a limit of its account is reached", true),
    ("MaxGRES", "it requests more of a generic resource than allowed", true),
    ("ReqNodeNotAvail", "nodes that it requests are down, drained or reserved", false),
    ("Nodes_required_for_job_are_DOWN", "nodes that it requests are down, drained or reserved", false),
];

/// Returns the meaning of a reason; `None` if it is unknown. Then only Slurm's word is shown, and waiting may
/// help.
pub fn explain_reason(reason: &str) -> Option<PendingReason> {
    let reason = reason.trim().trim_start_matches('(');
    let word = reason.split(|c: char| c == ',' || c == ')' || c.is_whitespace()).next()?;
    let found = KNOWN_REASONS.iter().find(|(name, ..)| *name == word);
    let found = found.or_else(|| REASON_PREFIXES.iter().find(|(begin, ..)| word.starts_with(begin)));
    found.map(|&(_, words, needs_human)| PendingReason { text: words, needs_human })
}

/// Returns Slurm's word and its explanation, for people.
pub fn describe_reason(reason: &str) -> String {
    explain_reason(reason).map_or_else(|| reason.to_owned(), |known| format!("{reason}: {}", known.text))
}

pub fn needs_human(reason: &str) -> bool {
    explain_reason(reason).is_some_and(|known| known.needs_human)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_reasons_that_need_an_operator() {
        for reason in [
            "PartitionTimeLimit",
            "PartitionConfig",
            "AssocGrpCpuLimit",
            "AssocGrpBillingMinutes",
            "QOSMaxCpuPerJobLimit",
            "QOSGrpNodeLimit",
            "DependencyNeverSatisfied",
            "BadConstraints",
            "JobHeldAdmin",
            "(launch failed requeued held)",
            "launch failed requeued held",
        ] {
            assert!(needs_human(reason), "{reason}");
        }
        for reason in [
            "Priority",
            "Resources",
            "Dependency",
            "BeginTime",
            "QOSMaxJobsPerUserLimit",
            "AssocMaxJobsLimit",
            "ReqNodeNotAvail, UnavailableNodes:n[1-2]",
            "SomethingNew",
            "",
        ] {
            assert!(!needs_human(reason), "{reason}");
        }
    }

    #[test]
    fn pending_reason_text_names_the_slurm_reason() {
        assert_eq!(
            describe_reason("PartitionTimeLimit"),
            "PartitionTimeLimit: it requests more time than its partition allows, so it never starts: reduce the walltime, or use another partition"
        );
        assert_eq!(describe_reason("SomethingNew"), "SomethingNew");
        assert_eq!(
            describe_reason("ReqNodeNotAvail, UnavailableNodes:n1"),
            "ReqNodeNotAvail, UnavailableNodes:n1: nodes that it requests are down, drained or reserved"
        );
    }
}
