//! What fits into a round. A round takes files as a whole, together with those that have parts of the same lumis: what
//! becomes of a file is then known when its round is over, and the next one begins with other files.

use super::choose::ChosenFile;
use super::fault::PlanFault;
use super::input::PlanInput;
use super::sites::SiteSets;
use super::split::{Draft, split};
use super::terms::Terms;
use super::units::{Unit, units};
use super::value::Work;

pub(super) struct Round<'a> {
    pub(super) files: Vec<ChosenFile<'a>>,
    pub(super) draft: Draft,
    pub(super) units: Vec<Unit>,
    /// Files that are for later rounds.
    pub(super) later: u64,
}

pub(super) fn fit<'a>(
    input: &PlanInput<'_>,
    terms: &Terms,
    mut files: Vec<ChosenFile<'a>>,
    sets: &mut SiteSets,
) -> Result<Round<'a>, Vec<PlanFault>> {
    let all = files.len();
    loop {
        let draft = split(input, terms, &files, sets)?;
        let units = units(&draft, sets, terms);
        let keep = match input.max_units {
            Some(most) if units.len() > most as usize => those_within(&draft, &units, most, files.len()),
            _ => vec![true; files.len()],
        };
        // Without the others, what is left may be cut a little otherwise: look again.
        let before = files.len();
        let mut kept = keep.into_iter();
        files.retain(|_| kept.next() == Some(true));
        if files.len() == before {
            return Ok(Round { later: (all - before) as u64, files, draft, units });
        }
    }
}

/// Which files are in the first units and in no later one; at the very least those that belong to the first file.
fn those_within(draft: &Draft, units: &[Unit], most: u32, files: usize) -> Vec<bool> {
    let mut joined = Joined::new(files);
    for &(one, other) in &draft.joined {
        joined.join(one, other);
    }
    let mut last_unit = vec![0u32; files];
    for (index, unit) in units.iter().enumerate() {
        for job in &draft.jobs[unit.jobs.start as usize..unit.jobs.end as usize] {
            let Work::Read { from, to } = job.work else { continue };
            for slice in &draft.slices[from as usize..to as usize] {
                let group = joined.find(slice.file) as usize;
                last_unit[group] = last_unit[group].max(index as u32);
            }
        }
    }
    let mut keep: Vec<bool> =
        (0..files as u32).map(|file| last_unit[joined.find(file) as usize] < most).collect();
    if !keep.contains(&true) {
        let first = draft.slices.first().map_or(0, |slice| joined.find(slice.file));
        keep = (0..files as u32).map(|file| joined.find(file) == first).collect();
    }
    keep
}

/// Which files belong together.
struct Joined(Vec<u32>);

impl Joined {
    fn new(files: usize) -> Self {
        Self((0..files as u32).collect())
    }

    fn find(&mut self, mut file: u32) -> u32 {
        while self.0[file as usize] != file {
            let above = self.0[self.0[file as usize] as usize];
            self.0[file as usize] = above;
            file = above;
        }
        file
    }

    fn join(&mut self, one: u32, other: u32) {
        let (one, other) = (self.find(one), self.find(other));
        self.0[one.max(other) as usize] = one.min(other);
    }
}
