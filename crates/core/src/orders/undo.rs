//! Taking back what was changed about a job: only where the change still stands, and nothing has come of it yet.

use super::{Case, Edition, Place, difference};
use windlass_types::JobStatus;

/// A change that is to be taken back.
#[derive(Clone, Copy, Debug)]
pub struct Undoing<'a> {
    pub before: &'a Edition,
    pub after: &'a Edition,
    /// An attempt of the job has ended that was made with it.
    pub has_run: bool,
}

/// What taking it back comes to, in words; or why that cannot be.
pub fn undo(undoing: &Undoing<'_>, case: &Case<'_>) -> Result<String, String> {
    let Undoing { before, after, has_run } = *undoing;
    if case.status.is_active() || case.status == JobStatus::Completed {
        return Err(format!("it is `{}`", case.status));
    }
    if has_run {
        return Err("it has run since: change it anew".to_owned());
    }
    let now = as_it_is(after, case);
    if !stands(after, &now) {
        return Err(format!("it was changed since ({}): undo that first", difference(after, &now)));
    }
    Ok(difference(after, before))
}

/// What an edition is about, as the job is now.
fn as_it_is(edition: &Edition, case: &Case<'_>) -> Edition {
    Edition {
        asked: edition.asked.map(|_| case.asked),
        command: edition.command.as_ref().map(|_| case.command.to_owned()),
        priority: edition.priority.map(|_| case.priority),
        place: edition.place.as_ref().map(|_| Place::of(case.scheduler)),
    }
}

/// Where a job says what it asks for is not what it asks for, and a scheduler that was changed is the same one.
fn stands(then: &Edition, now: &Edition) -> bool {
    let asked = |edition: &Edition| edition.asked.map(|asked| asked.resources);
    let place = |edition: &Edition| {
        let scheduler = edition.place.as_ref().and_then(Place::scheduler);
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
    use crate::orders::{Asked, AskedBy};
    use windlass_types::settings::SlurmScheduler;
    use windlass_types::{Bytes, RequirementsId, Resources};

    fn asked(mib: u64, by: AskedBy) -> Asked {
        Asked { resources: Resources { memory: Bytes(mib << 20), ..Resources::DEFAULT }, by }
    }

    fn slurm(name: &str, account: &str) -> SlurmScheduler {
        SlurmScheduler { name: name.into(), account: account.into(), ..SlurmScheduler::default() }
    }

    #[test]
    fn only_what_still_stands_is_taken_back() {
        let before = Edition {
            asked: Some(asked(100, AskedBy::Row(RequirementsId(3)))),
            command: Some("old".into()),
            priority: Some(1),
            place: Some(Place::Anywhere),
        };
        let after = Edition {
            asked: Some(asked(200, AskedBy::Itself)),
            command: Some("new".into()),
            priority: Some(2),
            place: Some(Place::of(Some(&slurm("big", "a")))),
        };
        let big = slurm("big", "b");
        let case = Case {
            status: JobStatus::Failed,
            asked: asked(200, AskedBy::Row(RequirementsId(9))),
            command: "new",
            priority: 2,
            scheduler: Some(&big),
            agent_retries: 0,
            said: None,
        };
        let undoing = Undoing { before: &before, after: &after, has_run: false };
        let words = "memory 200 MiB → 100 MiB, another command, priority 2 → 1, scheduler big → none";
        assert_eq!(undo(&undoing, &case), Ok(words.to_owned()));

        let why = |undoing: Undoing<'_>, case: Case<'_>| undo(&undoing, &case).unwrap_err();
        let more = Case { asked: asked(400, AskedBy::Itself), ..case };
        assert_eq!(why(undoing, more), "it was changed since (memory 200 MiB → 400 MiB): undo that first");
        assert!(why(undoing, Case { priority: 7, ..case }).contains("priority 2 → 7"));
        assert!(why(undoing, Case { command: "newer", ..case }).contains("another command"));
        assert!(why(undoing, Case { scheduler: None, ..case }).contains("scheduler big → none"));
        assert_eq!(why(Undoing { has_run: true, ..undoing }, case), "it has run since: change it anew");
        for status in [JobStatus::Pending, JobStatus::Running, JobStatus::Completed] {
            assert_eq!(why(undoing, Case { status, ..case }), format!("it is `{status}`"));
        }
        // What it was not about is not looked at.
        let priority = |priority| Edition { priority: Some(priority), ..Edition::default() };
        let (one, two) = (priority(1), priority(2));
        let undoing = Undoing { before: &one, after: &two, has_run: false };
        assert_eq!(undo(&undoing, &more), Ok("priority 2 → 1".to_owned()));
    }
}
