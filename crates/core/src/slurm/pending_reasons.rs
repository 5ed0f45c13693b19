//! Why a job of Slurm waits, in plain words; and whether waiting will help.

/// A reason of Slurm's, explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingReason {
    pub text: &'static str,
    /// It will wait until somebody changes something.
    pub needs_human: bool,
}

/// By the whole word.
const KNOWN_REASONS: &[(&str, &str, bool)] = &[
    ("Priority", "others are before it in the queue", false),
    ("Resources", "it is the next, and the nodes that it asks for are in use", false),
    ("BeginTime", "it may not begin yet; after a requeue Slurm waits for up to two minutes", false),
    ("Cleaning", "its last run is being cleaned up", false),
    ("Dependency", "another job has to end first", false),
    ("Licenses", "all licenses that it asks for are in use", false),
    ("NodeDown", "a node that it needs is down", false),
    ("ReqNodeNotAvail", "nodes that it asks for are down, drained or reserved", false),
    ("Reservation", "its reservation has not begun", false),
    ("JobArrayTaskLimit", "as many tasks of its array run as may", false),
    ("Prolog", "its nodes are being prepared", false),
    ("Configuring", "its nodes are being started", false),
    ("FrontEndDown", "no front end of the cluster is up", false),
    ("SchedDefer", "Slurm has put off looking for nodes", false),
    ("PartitionDown", "its partition is down: it takes jobs but starts none", true),
    ("PartitionInactive", "its partition is inactive: ask who runs the cluster, or use another one", true),
    (
        "PartitionTimeLimit",
        "it asks for more time than its partition allows, so it never starts: lower the walltime, or use another partition",
        true,
    ),
    (
        "PartitionNodeLimit",
        "it asks for more nodes than its partition allows, or for ones that are down: lower `nodes`, or use another partition",
        true,
    ),
    (
        "PartitionConfig",
        "no node of its partition can give what it asks for, so it never starts: ask for less, or use another partition",
        true,
    ),
    ("BadConstraints", "no node has what it asks for: see the constraint and the partition", true),
    ("DependencyNeverSatisfied", "the job that it waits for has failed, so it never starts: cancel it", true),
    ("JobHeldAdmin", "an administrator holds it: ask who runs the cluster", true),
    ("JobHeldUser", "somebody holds it: `scontrol release` lets it go", true),
    ("InvalidAccount", "its account is not known, or may not be used: see `account` of the scheduler", true),
    ("InvalidQOS", "its quality of service is not known: see `qos` of the scheduler", true),
    ("AccountNotAllowed", "its account may not use its partition", true),
    ("QOSNotAllowed", "its quality of service may not be used there", true),
    ("ReservationDeleted", "its reservation is gone: see `extra` of the scheduler", true),
    ("ReservationInvalid", "its reservation is not known: see `extra` of the scheduler", true),
    ("NonZeroExitCode", "its script ended with an error", true),
    ("JobLaunchFailure", "Slurm could not start it: see the cluster's log and `scontrol show job`", true),
    ("launch", "Slurm could not start it, and holds it: `scontrol release` lets it try again", true),
];

/// By how they begin: there are dozens of each, one for each thing that can be limited.
const REASON_PREFIXES: &[(&str, &str, bool)] = &[
    (
        "QOSJobLimit",
        "as many of your jobs run as this quality of service allows; it starts when one has ended",
        false,
    ),
    (
        "QOSMaxJobs",
        "as many of your jobs run as this quality of service allows; it starts when one has ended",
        false,
    ),
    ("AssocMaxJobs", "as many of your jobs run as your account allows; it starts when one has ended", false),
    (
        "AssocGrp",
        "a limit of your account is reached: it starts when there is room, or never if it asks for more than the limit",
        true,
    ),
    ("AssocMax", "it asks for more than your account allows one job, or one user", true),
    (
        "QOSGrp",
        "a limit of this quality of service is reached: it starts when there is room, or never if it asks for more than the limit",
        true,
    ),
    ("QOSMax", "it asks for more than this quality of service allows one job, or one user", true),
    ("QOSMin", "it asks for less than this quality of service wants", true),
    ("QOS", "a limit of its quality of service keeps it", true),
    ("Assoc", "a limit of its account keeps it", true),
    ("MaxGRES", "it asks for more of something than it may have", true),
    ("ReqNodeNotAvail", "nodes that it asks for are down, drained or reserved", false),
    ("Nodes_required_for_job_are_DOWN", "nodes that it asks for are down, drained or reserved", false),
];

/// What a reason means; `None` for one that nobody has put into words here. Then Slurm's own is all there is, and waiting may
/// help.
pub fn explain_reason(reason: &str) -> Option<PendingReason> {
    let reason = reason.trim().trim_start_matches('(');
    let word = reason.split(|c: char| c == ',' || c == ')' || c.is_whitespace()).next()?;
    let found = KNOWN_REASONS.iter().find(|(name, ..)| *name == word);
    let found = found.or_else(|| REASON_PREFIXES.iter().find(|(begin, ..)| word.starts_with(begin)));
    found.map(|&(_, words, needs_human)| PendingReason { text: words, needs_human })
}

/// With Slurm's word and ours, for people.
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
    fn which_reasons_need_a_human() {
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
    fn slurms_word_is_always_told() {
        assert_eq!(
            describe_reason("PartitionTimeLimit"),
            "PartitionTimeLimit: it asks for more time than its partition allows, so it never starts: lower the walltime, or use another partition"
        );
        assert_eq!(describe_reason("SomethingNew"), "SomethingNew");
        assert_eq!(
            describe_reason("ReqNodeNotAvail, UnavailableNodes:n1"),
            "ReqNodeNotAvail, UnavailableNodes:n1: nodes that it asks for are down, drained or reserved"
        );
    }
}
