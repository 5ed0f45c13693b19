//! Removes the unmerged files of a unit, and of no other.

use crate::exit_codes;
use crate::failure::PayloadFailure;
use crate::workspace::UnitWorkspace;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

/// Removes the files and returns their number. Only after the merge, unless forced: they are the only copy of
/// the unit's work.
pub fn cleanup_unit(place: &UnitWorkspace, insist: bool) -> Result<usize, PayloadFailure> {
    let unit = &place.manifest.unit;
    if !insist {
        let merged = place.merge_output().map_err(|error| {
            PayloadFailure::from_io(
                exit_codes::STORAGE,
                "read what was merged",
                &place.merge_output_path(),
                &error,
            )
        })?;
        if merged.is_none() {
            let message = format!("{unit} is not merged: its files are still needed");
            return Err(PayloadFailure::new(exit_codes::CONFIGURATION, message));
        }
    }
    let mut removed = 0;
    for site in used_sites(place) {
        for output in &place.manifest.outputs {
            let lfn = place.manifest.unmerged_directory(output);
            let Some(directory) = place.path_at(&site, &lfn) else { continue };
            removed += remove_files(&directory).map_err(|error| {
                PayloadFailure::from_io(exit_codes::STORAGE, "remove", &directory, &error)
            })?;
        }
    }
    Ok(removed)
}

/// In this directory, and in the output directories of all nodes of the unit.
fn used_sites(place: &UnitWorkspace) -> BTreeSet<String> {
    let nodes = place.manifest.nodes.iter();
    let reported = nodes.filter_map(|node| place.report(node.index).ok().flatten()).map(|report| report.site);
    reported.chain([place.site.clone()]).collect()
}

/// Drafts of killed attempts are removed with the files.
fn remove_files(directory: &Path) -> io::Result<usize> {
    let files = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        listed => listed?.count(),
    };
    fs::remove_dir_all(directory)?;
    Ok(files)
}
