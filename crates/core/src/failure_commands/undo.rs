//! Undo of changes to a job: only if the change is still in effect and the job has not run with it.

use super::{CommandTarget, JobPatch, SchedulerTarget, describe_patch};
use windlass_types::JobStatus;

/// A change to be undone.
#[derive(Clone, Copy, Debug)]
pub struct PatchUndo<'a> {
    pub before: &'a JobPatch,
    pub after: &'a JobPatch,
    /// Whether an attempt with the change has ended.
    pub has_run: bool,
}

/// Describes what the undo changes, or why it is not possible.
pub fn plan_undo(undoing: &PatchUndo<'_>, case: &CommandTarget<'_>) -> Result<String, String> {
    let PatchUndo { before, after, has_run } = *undoing;
    if case.status.is_active() || case.status == JobStatus::Completed {
        return Err(format!("it is `{}`", case.status));
    }
    if has_run {
        return Err("it has run since: make a new change instead".to_owned());
    }
    let now = current_patch(after, case);
    if !is_unchanged(after, &now) {
        return Err(format!("it was changed since ({}): undo that first", describe_patch(after, &now)));
    }
    Ok(describe_patch(after, before))
}

/// Returns the current values of the properties in the patch.
fn current_patch(edition: &JobPatch, case: &CommandTarget<'_>) -> JobPatch {
    JobPatch {
        asked: edition.asked.map(|_| case.asked),
        command: edition.command.as_ref().map(|_| case.command.to_owned()),
        priority: edition.priority.map(|_| case.priority),
        place: edition.place.as_ref().map(|_| SchedulerTarget::from_scheduler(case.scheduler)),
    }
}

/// Ignores where the resources are stored, and treats a modified copy of a scheduler as the same scheduler.
fn is_unchanged(then: &JobPatch, now: &JobPatch) -> bool {
    let asked = |edition: &JobPatch| edition.asked.map(|asked| asked.resources);
    let place = |edition: &JobPatch| {
        let scheduler = edition.place.as_ref().and_then(SchedulerTarget::scheduler);
        scheduler.map(|scheduler| scheduler.name.clone())
    };
    asked(then) == asked(now)
        && then.command == now.command
        && then.priority == now.priority
        && place(then) == place(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure_commands::{RequestedResources, ResourceSource};
    use windlass_types::settings::SlurmScheduler;
    use windlass_types::{Bytes, RequirementsId, Resources};

    fn asked(mib: u64, by: ResourceSource) -> RequestedResources {
        RequestedResources { resources: Resources { memory: Bytes(mib << 20), ..Resources::DEFAULT }, by }
    }

    fn slurm(name: &str, account: &str) -> SlurmScheduler {
        SlurmScheduler { name: name.into(), account: account.into(), ..SlurmScheduler::default() }
    }

    #[test]
    fn undo_reverts_unchanged_fields_only() {
        let before = JobPatch {
            asked: Some(asked(100, ResourceSource::Row(RequirementsId(3)))),
            command: Some("old".into()),
            priority: Some(1),
            place: Some(SchedulerTarget::Anywhere),
        };
        let after = JobPatch {
            asked: Some(asked(200, ResourceSource::Itself)),
            command: Some("new".into()),
            priority: Some(2),
            place: Some(SchedulerTarget::from_scheduler(Some(&slurm("big", "a")))),
        };
        let big = slurm("big", "b");
        let case = CommandTarget {
            status: JobStatus::Failed,
            asked: asked(200, ResourceSource::Row(RequirementsId(9))),
            command: "new",
            priority: 2,
            scheduler: Some(&big),
            agent_retries: 0,
            log_tail: None,
        };
        let undoing = PatchUndo { before: &before, after: &after, has_run: false };
        let words = "memory 200 MiB → 100 MiB, another command, priority 2 → 1, scheduler big → none";
        assert_eq!(plan_undo(&undoing, &case), Ok(words.to_owned()));

        let why = |undoing: PatchUndo<'_>, case: CommandTarget<'_>| plan_undo(&undoing, &case).unwrap_err();
        let more = CommandTarget { asked: asked(400, ResourceSource::Itself), ..case };
        assert_eq!(why(undoing, more), "it was changed since (memory 200 MiB → 400 MiB): undo that first");
        assert!(why(undoing, CommandTarget { priority: 7, ..case }).contains("priority 2 → 7"));
        assert!(why(undoing, CommandTarget { command: "newer", ..case }).contains("another command"));
        assert!(why(undoing, CommandTarget { scheduler: None, ..case }).contains("scheduler big → none"));
        assert_eq!(
            why(PatchUndo { has_run: true, ..undoing }, case),
            "it has run since: make a new change instead"
        );
        for status in [JobStatus::Pending, JobStatus::Running, JobStatus::Completed] {
            assert_eq!(why(undoing, CommandTarget { status, ..case }), format!("it is `{status}`"));
        }
        // Other properties are not compared.
        let priority = |priority| JobPatch { priority: Some(priority), ..JobPatch::default() };
        let (one, two) = (priority(1), priority(2));
        let undoing = PatchUndo { before: &one, after: &two, has_run: false };
        assert_eq!(plan_undo(&undoing, &more), Ok("priority 2 → 1".to_owned()));
    }
}
