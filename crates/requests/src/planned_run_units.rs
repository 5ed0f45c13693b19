//! The outline of a planned run for the backend: the number of jobs of each unit, their requirements, and their
//! allowed sites.
//!
//! It is the last file that planning writes into the directory of a run (`run.json`): if it exists, all
//! manifests exist.

use crate::backend::JobSize;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use windlass_core::requests::rows::{RunRow, RunTotals};
use windlass_types::payload::WorkUnitMetrics;
use windlass_types::requests::{NodeRole, WorkUnitName};

pub(crate) const OUTLINE_FILE: &str = "run.json";

/// A run, unit by unit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlannedRunUnits {
    /// The sets of sites of units; each ascending.
    pub(crate) sites: Vec<Vec<String>>,
    /// The requirements of jobs.
    pub(crate) sizes: Vec<JobSize>,
    /// Maximum disk space of a job.
    #[serde(default)]
    pub(crate) disk_kb: u64,
    pub(crate) units: Vec<PlannedUnitJobs>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlannedUnitJobs {
    /// Index into [`PlannedRunUnits::sites`].
    pub(crate) sites: u32,
    /// `(size, count)` in the order of the nodes.
    pub(crate) nodes: Vec<(u32, u32)>,
}

impl PlannedUnitJobs {
    /// The sizes of its nodes, in their order.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = u32> {
        self.nodes.iter().flat_map(|&(size, count)| (0..count).map(move |_| size))
    }

    pub(crate) fn push(&mut self, size: u32) {
        match self.nodes.last_mut() {
            Some((last, count)) if *last == size => *count += 1,
            _ => self.nodes.push((size, 1)),
        }
    }

    fn node_count(&self) -> u64 {
        self.nodes.iter().map(|&(_, count)| u64::from(count)).sum()
    }
}

impl PlannedRunUnits {
    /// The index of this set of sites.
    pub(crate) fn intern_site_set(&mut self, sites: &[String]) -> u32 {
        intern_item(&mut self.sites, sites, <[String]>::to_vec)
    }

    pub(crate) fn intern_size(&mut self, size: JobSize) -> u32 {
        intern_item(&mut self.sizes, &size, |size| *size)
    }

    /// As counted by the requests API: each unit has a landing, a merge and a cleanup besides.
    pub(crate) fn totals(&self) -> RunTotals {
        let units = self.units.len() as u64;
        let processing: u64 = self.units.iter().map(PlannedUnitJobs::node_count).sum();
        let roles = [
            (NodeRole::Landing, units),
            (NodeRole::Processing, processing),
            (NodeRole::Merge, units),
            (NodeRole::Cleanup, units),
        ];
        RunTotals {
            nodes: processing + 3 * units,
            edges: 2 * processing + units,
            by_role: roles.map(|(role, count)| (role.name().to_owned(), count)).into(),
            units: self.units.len() as u32,
        }
    }

    /// Marks the directory as complete. On disk when it returns, with all that was written before it.
    pub(crate) fn write(&self, directory: &Path) -> io::Result<()> {
        let (hidden, shown) = (directory.join(".run.json"), directory.join(OUTLINE_FILE));
        fs::write(&hidden, serde_json::to_vec(self)?)?;
        let directory = File::open(directory)?;
        // Syncs the manifests too, all at once: ten thousand single syncs take twenty times as long. Concurrent
        // writes to the same file system are synced with them.
        rustix::fs::syncfs(&directory)?;
        fs::rename(&hidden, &shown)?;
        directory.sync_all()
    }

    pub(crate) fn read(directory: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(directory.join(OUTLINE_FILE))?)?)
    }
}

/// The index of `wanted` in the list, which is extended if needed. The lists are short.
fn intern_item<T, Q>(list: &mut Vec<T>, wanted: &Q, make: impl FnOnce(&Q) -> T) -> u32
where
    T: std::borrow::Borrow<Q>,
    Q: PartialEq + ?Sized,
{
    let found = list.iter().position(|known| known.borrow() == wanted);
    found.unwrap_or_else(|| {
        list.push(make(wanted));
        list.len() - 1
    }) as u32
}

/// `mg_000012.json`
pub(crate) fn manifest_path(directory: &Path, unit: u32) -> PathBuf {
    directory.join(format!("{}.json", WorkUnitName(unit)))
}

/// The directory for the results of a unit's jobs.
pub(crate) fn unit_directory(directory: &Path, unit: u32) -> PathBuf {
    directory.join(WorkUnitName(unit).to_string())
}

/// The usage of a run's jobs, unit by unit. A unit without a merge has none.
pub(crate) fn read_unit_metrics(run: &RunRow) -> Vec<WorkUnitMetrics> {
    let read = |unit| {
        let path = unit_directory(Path::new(&run.submit_dir), unit).join("metrics.json");
        let text = fs::read(&path).ok()?;
        serde_json::from_slice(&text)
            .inspect_err(|error| tracing::warn!(%error, path = %path.display(), "measurements are lost"))
            .ok()
    };
    (0..run.totals.units).filter_map(read).collect()
}

/// An empty directory. Leftovers of an earlier attempt are replaced, even complete ones, because nothing refers
/// to them before the next commit.
pub(crate) fn make_empty_directory(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::create_dir_all(directory)
}
