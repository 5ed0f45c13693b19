//! What of its input a request has still to process.

use super::{of_catalog, of_store};
use crate::world::World;
use std::collections::BTreeMap;
use windlass_core::requests::book::{FileCounts, Overrides, Process};
use windlass_core::requests::files::{self, Remaining};
use windlass_core::requests::lifecycle::Trouble;
use windlass_types::requests::Request;

/// What a round may be made of, and how the input stands.
#[derive(Debug, Default)]
pub(super) struct Input {
    pub(super) remaining: Remaining,
    pub(super) counts: FileCounts,
}

impl Input {
    /// Of the files that the catalog has now, those that earlier rounds have left. What nobody will ever read is noted first,
    /// so that it is known why, whatever becomes of the round.
    pub(super) fn of(
        world: &World,
        request: &Request,
        overrides: &Overrides,
        process: &Process,
        round: u32,
    ) -> Result<Self, Trouble> {
        let Some(dataset) = &request.input_dataset else { return Ok(Self::default()) };
        let of_store = |error: windlass_store::Error| of_store(&error);
        let rows = world.books.file_rows(&process.uuid).map_err(of_store)?;
        let files = world.catalog.files(dataset).map_err(of_catalog)?;
        let remaining = files::remaining(files, rows, &unwanted(overrides), round);
        if !remaining.excluded.is_empty() {
            world.books.put_file_rows(&process.uuid, &remaining.excluded).map_err(of_store)?;
        }
        Ok(Self { remaining, counts: world.books.file_counts(&process.uuid).map_err(of_store)? })
    }

    /// Rounds have dealt with some of it: that nothing is left is then no mistake of the request.
    pub(super) fn is_under_way(&self) -> bool {
        self.counts != FileCounts::default()
    }
}

/// Files that people do not want to be read, and who said so.
fn unwanted(overrides: &Overrides) -> BTreeMap<String, String> {
    let by = |lfn| overrides.excluded_by.get(lfn).map_or("a person", String::as_str).to_owned();
    overrides.excluded_files.iter().map(|lfn| (lfn.clone(), by(lfn))).collect()
}
