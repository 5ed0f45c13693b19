//! From a spec to one that says what is asked of Slurm for it. What that is, is found out in `insight/src/packing.rs`.

use crate::args::slurm::PackingArgs;
use crate::error::{CliError, Kind};
use crate::plan::SpecFile;
use windlass_core::slurm::generate::Proposal;
use windlass_core::slurm::groups::Options;
use windlass_core::slurm::profile::Profile;
use windlass_insight::packing::{self as asking, OfEntry, Unpacked, Unwritten};
use windlass_spec::Workflow;

pub(crate) use windlass_insight::packing::{check, demands, is_scheduled, title};

/// A proposal for all of its jobs; or an error that names those that fit nowhere.
pub(crate) fn proposals(
    workflow: &Workflow<'_>,
    demands: &[OfEntry],
    profile: &Profile,
    args: &PackingArgs,
) -> Result<Vec<Proposal>, CliError> {
    Ok(asking::proposals(workflow, demands, profile, &options(workflow, args))?)
}

/// What was said on the command line, and what the spec says where that says nothing.
pub(crate) fn options(workflow: &Workflow<'_>, args: &PackingArgs) -> Options {
    args.options(asking::default_account(workflow).or(args.default_account.as_deref()))
}

impl From<Unpacked> for CliError {
    fn from(error: Unpacked) -> Self {
        let hint = error.hint();
        Self::new(Kind::Spec, error.to_string()).with_hint(hint)
    }
}

impl From<Unwritten> for CliError {
    fn from(error: Unwritten) -> Self {
        match error {
            Unwritten::NoAccount => Self::user(error.to_string()).with_hint(
                "--account NAME, `account` in the spec's slurm_defaults, or `slurm.account` in the settings",
            ),
            Unwritten::NoPattern(_) => Self::new(Kind::Spec, error.to_string())
                .with_hint("give jobs of one entry names that no others have, or use --no-actions"),
            Unwritten::Patch(error) => error.into(),
        }
    }
}

/// The spec with schedulers, who uses them, and the actions that ask for their allocations.
pub(crate) fn scheduled(
    file: &SpecFile,
    workflow: &Workflow<'_>,
    demands: &[OfEntry],
    proposals: &[Proposal],
    with_actions: bool,
) -> Result<SpecFile, CliError> {
    let waits_for = |text: &str| -> Result<Vec<Vec<u32>>, CliError> {
        let new = file.with_text(text.to_owned());
        Ok(new.load()?.actions().iter().map(|action| action.jobs.clone()).collect())
    };
    asking::scheduled(file.source(), workflow, demands, proposals, with_actions, waits_for)
        .map(|text| file.with_text(text))
}
