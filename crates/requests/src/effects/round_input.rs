//! The part of its input that a request still has to process.

use super::{catalog_failure, store_failure};
use crate::context::RequestReconcilerContext;
use std::collections::BTreeMap;
use windlass_core::requests::input_files::{self, RemainingInput};
use windlass_core::requests::lifecycle::EffectFailure;
use windlass_core::requests::rows::{RequestFileCounts, RequestOverrides, RequestProgress};
use windlass_types::requests::Request;

/// The input of a round, and the state of the whole input.
#[derive(Debug, Default)]
pub(super) struct RoundInput {
    pub(super) remaining: RemainingInput,
    pub(super) counts: RequestFileCounts,
}

impl RoundInput {
    /// The files of the catalog that earlier rounds have left. Files that will never be read are recorded first
    /// with the reason, whether or not the round succeeds.
    pub(super) fn load(
        context: &RequestReconcilerContext,
        request: &Request,
        overrides: &RequestOverrides,
        process: &RequestProgress,
        round: u32,
    ) -> Result<Self, EffectFailure> {
        let Some(dataset) = &request.input_dataset else { return Ok(Self::default()) };
        let of_store = |error: windlass_store::StoreError| store_failure(&error);
        let rows = context.database.file_rows(&process.uuid).map_err(of_store)?;
        let files = context.catalog.list_files(dataset).map_err(catalog_failure)?;
        let remaining = input_files::remaining_input(files, rows, &excluded_files(overrides), round);
        if !remaining.excluded.is_empty() {
            context.database.put_file_rows(&process.uuid, &remaining.excluded).map_err(of_store)?;
        }
        Ok(Self { remaining, counts: context.database.file_counts(&process.uuid).map_err(of_store)? })
    }

    /// Rounds have processed some of it: an empty rest is then not an error of the request.
    pub(super) fn is_partly_processed(&self) -> bool {
        self.counts != RequestFileCounts::default()
    }
}

/// Files that operators have excluded, with their names.
fn excluded_files(overrides: &RequestOverrides) -> BTreeMap<String, String> {
    let by = |lfn| overrides.excluded_by.get(lfn).map_or("a person", String::as_str).to_owned();
    overrides.excluded_files.iter().map(|lfn| (lfn.clone(), by(lfn))).collect()
}
