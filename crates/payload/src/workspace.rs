//! Paths: the manifest, the results that the jobs of its unit leave beside it, and the files of a site.

use crate::exit_codes;
use crate::failure::PayloadFailure;
use crate::files::compute_checksum;
use serde::de::DeserializeOwned;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use windlass_types::payload::{
    ManifestInput, MergeOutput, ProcessingJob, ProcessingReport, StepProfile, WorkUnitManifest,
    WorkUnitMetrics, check_name,
};

/// A work unit at a site.
#[derive(Clone, Debug)]
pub struct UnitWorkspace {
    pub manifest: WorkUnitManifest,
    pub site: String,
    /// Directory of the manifest.
    directory: PathBuf,
    results_directory: PathBuf,
    /// Where a landing writes its missing inputs, if not among the results.
    landing_report: Option<PathBuf>,
}

impl UnitWorkspace {
    /// Reads and checks the manifest.
    pub fn open(manifest: &Path, site: &str) -> Result<Self, PayloadFailure> {
        let to_failure = |error: &io::Error| {
            PayloadFailure::from_io(exit_codes::CONFIGURATION, "read the manifest", manifest, error)
        };
        let path = fs::canonicalize(manifest).map_err(|error| to_failure(&error))?;
        let text = fs::read(&path).map_err(|error| to_failure(&error))?;
        let unit: WorkUnitManifest = serde_json::from_slice(&text).map_err(|error| {
            PayloadFailure::new(
                exit_codes::CONFIGURATION,
                format!("the manifest {} is invalid: {error}", path.display()),
            )
        })?;
        let faults = unit.find_problems();
        if !faults.is_empty() {
            let message = format!("the manifest {} is invalid: {}", path.display(), faults.join("; "));
            return Err(PayloadFailure::new(exit_codes::CONFIGURATION, message));
        }
        let directory = path.parent().unwrap_or(Path::new("/")).to_owned();
        Self::new(unit, site, directory)
    }

    /// For a valid manifest.
    pub fn new(manifest: WorkUnitManifest, site: &str, directory: PathBuf) -> Result<Self, PayloadFailure> {
        if let Err(error) = check_name(site) {
            return Err(PayloadFailure::new(
                exit_codes::CONFIGURATION,
                format!("invalid site `{site}`: {error}"),
            ));
        }
        if !manifest.sites.contains_key(site) {
            let known = manifest.sites.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let message =
                format!("site {site} is not in the manifest of {}; known sites: {known}", manifest.unit);
            return Err(PayloadFailure::new(exit_codes::CONFIGURATION, message));
        }
        let results = directory.join(&manifest.unit);
        Ok(Self {
            manifest,
            site: site.to_owned(),
            directory,
            results_directory: results,
            landing_report: None,
        })
    }

    /// Reports are in another directory: without a shared file system they are transferred separately.
    #[must_use]
    pub fn with_results(self, results: PathBuf) -> Self {
        Self { results_directory: results, ..self }
    }

    /// The missing inputs of a landing are written to this file. It removes all results, and only this file is
    /// transferred back.
    #[must_use]
    pub fn with_landing(self, report: PathBuf) -> Self {
        Self { landing_report: Some(report), ..self }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The path of an LFN at a site of the manifest.
    pub fn path_at(&self, site: &str, lfn: &str) -> Option<PathBuf> {
        let storage = &self.manifest.sites.get(site)?.storage_path;
        Some(PathBuf::from(format!("{}{lfn}", storage.trim_end_matches('/'))))
    }

    /// The path of an LFN at this site.
    pub fn path_of(&self, lfn: &str) -> PathBuf {
        // `new` has checked that the site exists.
        self.path_at(&self.site, lfn).unwrap_or_else(|| PathBuf::from(lfn))
    }

    pub fn storage(&self) -> &Path {
        Path::new(self.manifest.sites.get(&self.site).map_or("/", |site| &site.storage_path))
    }

    /// Results of the jobs of the unit.
    pub fn results_directory(&self) -> &Path {
        &self.results_directory
    }

    pub fn report_path(&self, node: u32) -> PathBuf {
        self.results_directory().join(format!("proc_{node}.json"))
    }

    /// Written by a landing that found inputs missing.
    pub fn landing_path(&self) -> PathBuf {
        self.landing_report.clone().unwrap_or_else(|| self.results_directory().join("landing.json"))
    }

    pub fn metrics_path(&self) -> PathBuf {
        self.results_directory().join("metrics.json")
    }

    pub fn merge_output_path(&self) -> PathBuf {
        self.results_directory().join("merge_output.json")
    }

    pub fn node(&self, index: u32) -> Result<&ProcessingJob, PayloadFailure> {
        self.manifest.node(index).ok_or_else(|| {
            let unit = &self.manifest.unit;
            PayloadFailure::new(exit_codes::CONFIGURATION, format!("{unit} has no node {index}"))
        })
    }

    pub fn report(&self, node: u32) -> io::Result<Option<ProcessingReport>> {
        read_json(&self.report_path(node))
    }

    pub fn merge_output(&self) -> io::Result<Option<MergeOutput>> {
        read_json(&self.merge_output_path())
    }

    pub fn metrics(&self) -> io::Result<Option<WorkUnitMetrics>> {
        read_json(&self.metrics_path())
    }

    pub fn step_profile(&self) -> io::Result<Option<StepProfile>> {
        read_json(&self.directory.join("step_profile.json"))
    }

    /// Where an input can be read from: the copy of this site first, then accessible ones of other sites. A copy
    /// that differs from the catalog is skipped.
    pub fn find_input_path(
        &self,
        input: &ManifestInput,
        compare: InputCheck,
    ) -> Result<PathBuf, UnusableInput> {
        let here = input.replicas.get(&self.site).map(PathBuf::from);
        let stored = self.path_of(&input.lfn);
        let elsewhere = input.replicas.values().map(PathBuf::from);
        let mut unusable = None;
        for path in here.into_iter().chain([stored]).chain(elsewhere) {
            let Some(size) = readable_size(&path) else { continue };
            match compare_with_catalog(input, &path, size, compare) {
                Ok(()) => return Ok(path),
                Err(why) => unusable = unusable.or(Some(why)),
            }
        }
        Err(unusable.unwrap_or(UnusableInput::Missing))
    }
}

/// How closely an input is compared with the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputCheck {
    /// Without reading it.
    Size,
    /// Size and checksum: the whole file is read.
    Checksum,
}

/// Why no copy of an input can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnusableInput {
    Missing,
    /// How the first copy differs from the catalog.
    Changed(String),
    /// Why the first copy cannot be read.
    Unreadable(String),
}

/// For a file that can be opened.
fn readable_size(path: &Path) -> Option<u64> {
    let metadata = fs::File::open(path).and_then(|file| file.metadata()).ok()?;
    metadata.is_file().then_some(metadata.len())
}

/// Compares a file with the catalog, as far as the catalog knows it.
fn compare_with_catalog(
    input: &ManifestInput,
    path: &Path,
    size: u64,
    compare: InputCheck,
) -> Result<(), UnusableInput> {
    let ManifestInput { lfn, .. } = input;
    if let Some(known) = input.size.filter(|known| *known != size) {
        return Err(UnusableInput::Changed(format!("{lfn} has {size} bytes, the catalog says {known}")));
    }
    // Some catalogs have a word instead of a checksum, and some omit leading zeros.
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    let known = input.adler32.as_deref().and_then(number).filter(|_| compare == InputCheck::Checksum);
    let Some(known) = known else { return Ok(()) };
    let sum = compute_checksum(path).map_err(|error| UnusableInput::Unreadable(format!("{lfn}: {error}")))?;
    if number(&sum.adler32()) == Some(known) {
        return Ok(());
    }
    let why = format!("{lfn} has the adler32 {}, the catalog says {known:08x}", sum.adler32());
    Err(UnusableInput::Changed(why))
}

/// `None` if there is no such file.
fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
