//! Whether a site is suitable for a unit: its storage is writable, and the inputs are readable from there.

use crate::exit_codes;
use crate::failure::PayloadFailure;
use crate::files::{draft_path, write_json};
use crate::workspace::{InputCheck, UnitWorkspace, UnusableInput};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use windlass_types::FailureClass;
use windlass_types::payload::{ManifestInput, ProcessingReport};

/// Checks the site, and removes the reports of an earlier try of the unit: where a landing runs, the whole unit
/// starts again, perhaps at another site, and old reports must not be read as new ones.
pub fn run_landing(place: &UnitWorkspace) -> Result<(), PayloadFailure> {
    let report = place.landing_path();
    match fs::remove_file(&report) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(PayloadFailure::from_io(
                exit_codes::STORAGE,
                "remove the old report",
                &report,
                &error,
            ));
        }
        _ => {}
    }
    check_storage(place)?;
    check_inputs(place).inspect_err(|failure| write_missing_inputs(place, failure))?;
    let results = place.results_directory();
    match fs::remove_dir_all(results) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(PayloadFailure::from_io(exit_codes::STORAGE, "remove the old reports in", results, &error))
        }
        _ => Ok(()),
    }
}

fn check_storage(place: &UnitWorkspace) -> Result<(), PayloadFailure> {
    let storage = place.storage();
    let probe = storage.join(format!("windlass-probe-{}-{}", place.manifest.tag, place.manifest.unit));
    try_write(storage, &probe).map_err(|error| {
        PayloadFailure::from_io(exit_codes::STORAGE, "write to the storage of the site", storage, &error)
    })
}

fn try_write(storage: &Path, probe: &Path) -> io::Result<()> {
    if !storage.is_dir() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "there is no such directory"));
    }
    let draft = draft_path(probe)?;
    let mut file = File::create(&draft)?;
    file.write_all(b"windlass\n")?;
    file.sync_all()?;
    fs::remove_file(&draft)
}

/// The last line of a log has room for a few names only; the complete list goes into a file. If it cannot be
/// written, the failure is the same, and an operator reads the names.
fn write_missing_inputs(place: &UnitWorkspace, failure: &PayloadFailure) {
    let report = ProcessingReport {
        unit: place.manifest.unit.clone(),
        site: place.site.clone(),
        failure: Some(failure.to_report()),
        bad_inputs: failure.bad_inputs.clone(),
        ..ProcessingReport::default()
    };
    write_json(&place.landing_path(), &report).unwrap_or_default();
}

/// A file that the catalog lists at another site may be accessible from there. A file without another site is
/// lost, and a changed file is unusable everywhere.
fn check_inputs(place: &UnitWorkspace) -> Result<(), PayloadFailure> {
    let inputs = place.manifest.nodes.iter().flat_map(|node| &node.inputs);
    let (mut missing, mut changed) = (Vec::new(), Vec::new());
    for input in inputs {
        match place.find_input_path(input, InputCheck::Size) {
            Ok(_) => {}
            Err(UnusableInput::Missing | UnusableInput::Unreadable(_)) => missing.push(input),
            Err(UnusableInput::Changed(why)) => changed.push((input.lfn.clone(), why)),
        }
    }
    // Several nodes may read parts of one file.
    changed.dedup();
    if let Some((_, why)) = changed.first() {
        let message = format!("{} of the inputs were changed at {}: {why}", changed.len(), place.site);
        let lfns = changed.into_iter().map(|(lfn, _)| lfn).collect();
        return Err(PayloadFailure::new(exit_codes::FILE_READ, message).with_bad_inputs(lfns));
    }
    if missing.is_empty() {
        return Ok(());
    }
    let mut lfns: Vec<String> = missing.iter().map(|input| input.lfn.clone()).collect();
    lfns.dedup();
    let is_elsewhere = |input: &&ManifestInput| input.replicas.keys().any(|site| *site != place.site);
    let class =
        if missing.iter().all(is_elsewhere) { FailureClass::Infrastructure } else { FailureClass::Data };
    let named = lfns.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(", ");
    let message = format!("{} of the inputs cannot be opened at {}: {named}", lfns.len(), place.site);
    Err(PayloadFailure::new(exit_codes::FILE_OPEN, message).with_class(class).with_bad_inputs(lfns))
}
