//! Merges the outputs of the nodes into the files that are registered.
//!
//! All inputs are compared with the reports of the nodes: size, checksum, events. `merge_output.json` is written
//! last, so all files that it names exist.

use crate::event_files::EventCounter;
use crate::exit_codes;
use crate::failure::PayloadFailure;
use crate::files::{self, DraftFile, FileChecksum, read_chunks, write_json};
use crate::metrics;
use crate::step_process::{self, StepControl};
use crate::workspace::UnitWorkspace;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use windlass_process::shell;
use windlass_types::LumiMask;
use windlass_types::payload::{
    EventCountSource, MergeCounts, MergeOutput, MergedFile, ProcessingReport, ProducedFile, WorkUnitOutput,
};
use windlass_types::worker_messages::ProcessExit;

/// Merges a unit. A merged unit is left unchanged: its inputs may have been removed.
pub fn merge_unit(
    place: &UnitWorkspace,
    work_dir: &Path,
    control: &StepControl,
) -> Result<MergeOutput, PayloadFailure> {
    if let Some(done) = find_earlier_merge(place) {
        return Ok(done);
    }
    let reports = read_reports(place)?;
    let mut output = MergeOutput {
        request: place.manifest.request.clone(),
        unit: place.manifest.unit.clone(),
        number: place.manifest.number,
        site: place.site.clone(),
        counts: MergeCounts { nodes: reports.len() as u64, ..MergeCounts::default() },
        ..MergeOutput::default()
    };
    for wanted in &place.manifest.outputs {
        let sources = collect_sources(place, wanted, &reports)?;
        let files = output.datasets.entry(wanted.dataset.clone()).or_default();
        for (number, sources) in split_into_parts(sources, place.manifest.merge.max_bytes).iter().enumerate()
        {
            let merged = MergePart { workspace: place, output: wanted, number, sources }
                .write_merged_file(work_dir, control)?;
            output.counts.files += 1;
            output.counts.bytes += merged.size;
            output.counts.events += merged.events;
            files.push(merged);
        }
    }
    let manifest = &place.manifest;
    let used = metrics::unit_metrics(&manifest.request, &manifest.unit, &place.site, &reports);
    write_json_file(&place.metrics_path(), &used)?;
    write_json_file(&place.merge_output_path(), &output)?;
    Ok(output)
}

/// The result of an earlier attempt, if all of its files exist.
fn find_earlier_merge(place: &UnitWorkspace) -> Option<MergeOutput> {
    let output = place.merge_output().ok().flatten().filter(|output| output.site == place.site)?;
    place.metrics().ok().flatten()?;
    let is_there = |file: &MergedFile| {
        fs::metadata(place.path_of(&file.lfn)).is_ok_and(|metadata| metadata.len() == file.size)
    };
    output.datasets.values().flatten().all(is_there).then_some(output)
}

fn write_json_file(path: &Path, value: &impl serde::Serialize) -> Result<(), PayloadFailure> {
    write_json(path, value)
        .map_err(|error| PayloadFailure::from_io(exit_codes::STORAGE, "write", path, &error))
}

/// In the order of the nodes. All must have succeeded.
fn read_reports(place: &UnitWorkspace) -> Result<Vec<ProcessingReport>, PayloadFailure> {
    let mut nodes: Vec<u32> = place.manifest.nodes.iter().map(|node| node.index).collect();
    nodes.sort_unstable();
    let mut reports = Vec::with_capacity(nodes.len());
    for node in nodes {
        let path = place.report_path(node);
        let report = place
            .report(node)
            .map_err(|error| PayloadFailure::from_io(exit_codes::MERGE_INPUT, "read", &path, &error))?;
        match report {
            Some(report) if report.failure.is_none() => reports.push(report),
            Some(_) => {
                return Err(PayloadFailure::new(
                    exit_codes::MERGE_INPUT,
                    format!("node {node} failed: {}", path.display()),
                ));
            }
            None => {
                return Err(PayloadFailure::new(
                    exit_codes::MERGE_INPUT,
                    format!("node {node} left no {}", path.display()),
                ));
            }
        }
    }
    Ok(reports)
}

/// An unmerged file with its path.
struct MergeSource<'a> {
    node: u32,
    file: &'a ProducedFile,
    path: PathBuf,
}

fn collect_sources<'a>(
    place: &UnitWorkspace,
    output: &WorkUnitOutput,
    reports: &'a [ProcessingReport],
) -> Result<Vec<MergeSource<'a>>, PayloadFailure> {
    let mut sources = Vec::with_capacity(reports.len());
    for report in reports {
        let lfn = place.manifest.unmerged_lfn(output, report.node);
        let file = report.outputs.iter().find(|file| file.lfn == lfn).ok_or_else(|| {
            PayloadFailure::new(
                exit_codes::MERGE_INPUT,
                format!("node {} does not report {lfn}", report.node),
            )
        })?;
        let path = place.path_at(&report.site, &lfn).unwrap_or_else(|| place.path_of(&lfn));
        sources.push(MergeSource { node: report.node, file, path });
    }
    Ok(sources)
}

/// Neighbors together, as many as fit. A file above the limit is a part of its own.
fn split_into_parts(sources: Vec<MergeSource<'_>>, max_bytes: Option<u64>) -> Vec<Vec<MergeSource<'_>>> {
    let mut parts: Vec<Vec<MergeSource<'_>>> = Vec::new();
    let mut size = 0u64;
    for source in sources {
        size = size.saturating_add(source.file.size);
        match parts.last_mut() {
            Some(part) if max_bytes.is_none_or(|most| size <= most) => part.push(source),
            _ => {
                size = source.file.size;
                parts.push(vec![source]);
            }
        }
    }
    parts
}

/// One merged file.
struct MergePart<'a> {
    workspace: &'a UnitWorkspace,
    output: &'a WorkUnitOutput,
    number: usize,
    sources: &'a [MergeSource<'a>],
}

impl MergePart<'_> {
    fn write_merged_file(
        &self,
        work_dir: &Path,
        control: &StepControl,
    ) -> Result<MergedFile, PayloadFailure> {
        let lfn = self.workspace.manifest.merged_lfn(self.output, self.number);
        let target = self.workspace.path_of(&lfn);
        let sum = match &self.workspace.manifest.merge.command {
            None => self.concatenate(&target)?,
            Some(command) => self.run_merge_command(command, &target, work_dir, control)?,
        };
        let mut lumis = LumiMask::default();
        for (run, ranges) in self.sources.iter().flat_map(|source| &source.file.lumis) {
            for range in ranges {
                lumis.insert_range(*run, *range);
            }
        }
        Ok(MergedFile {
            lfn,
            size: sum.size,
            adler32: sum.adler32(),
            events: self.event_count(),
            lumis,
            parents: self.parents(),
        })
    }

    fn event_count(&self) -> u64 {
        self.sources.iter().map(|source| source.file.events).sum()
    }

    fn parents(&self) -> Vec<String> {
        let nodes = self.sources.iter().filter_map(|source| self.workspace.manifest.node(source.node));
        let lfns: BTreeSet<&String> = nodes.flat_map(|node| &node.inputs).map(|input| &input.lfn).collect();
        lfns.into_iter().cloned().collect()
    }

    /// Concatenates the inputs, checking them while they are copied.
    fn concatenate(&self, target: &Path) -> Result<FileChecksum, PayloadFailure> {
        let to_failure =
            |error: &std::io::Error| PayloadFailure::from_io(exit_codes::STAGE_OUT, "write", target, error);
        let mut draft = DraftFile::new(target).map_err(|error| to_failure(&error))?;
        for source in self.sources {
            let (mut write_error, mut is_binary) = (None, false);
            verify_source(source, |piece| {
                is_binary |= piece.contains(&0);
                draft.write_all(piece).inspect_err(|error| write_error = Some(to_failure(error)))
            })
            .map_err(|failure| write_error.take().unwrap_or(failure))?;
            if is_binary && self.sources.len() > 1 {
                return Err(binary_source_error(source));
            }
        }
        draft.publish().map_err(|error| to_failure(&error))
    }

    /// Runs the merge command, which writes to a temporary path; the output is renamed when the command has
    /// succeeded and the file exists.
    fn run_merge_command(
        &self,
        command: &str,
        target: &Path,
        work_dir: &Path,
        control: &StepControl,
    ) -> Result<FileChecksum, PayloadFailure> {
        for source in self.sources {
            verify_source(source, |_| Ok(()))?;
        }
        let to_failure =
            |error: &std::io::Error| PayloadFailure::from_io(exit_codes::STAGE_OUT, "write", target, error);
        let draft = DraftFile::new(target).map_err(|error| to_failure(&error))?;
        let list = self.write_list(work_dir)?;
        let ended = step_process::run_process(
            control,
            shell::shell_command(command)
                .env("WINDLASS_REQUEST", &self.workspace.manifest.request)
                .env("WINDLASS_UNIT", &self.workspace.manifest.unit)
                .env("WINDLASS_SITE", &self.workspace.site)
                .env("WINDLASS_MANIFEST_DIR", self.workspace.directory())
                .env("WINDLASS_DATASET", &self.output.dataset)
                .env("WINDLASS_INPUTS", &list)
                .env("WINDLASS_OUTPUT", draft.path())
                .current_dir(work_dir)
                .stdin(Stdio::null()),
        );
        // Only the command needed it.
        fs::remove_file(&list).ok();
        match ended.map(|ended| ended.exit) {
            Ok(ProcessExit::Code(0)) => {}
            Ok(exit) => {
                let code = exit.return_code();
                return Err(PayloadFailure::new(
                    code,
                    format!("the merge command failed with exit code {code}"),
                ));
            }
            Err(error) => {
                return Err(PayloadFailure::new(
                    exit_codes::EXCEPTION,
                    format!("the merge command cannot be started: {error}"),
                ));
            }
        }
        let (sum, contents) = read_and_count(draft.path()).map_err(|error| to_failure(&error))?;
        if sum.size == 0 && self.event_count() > 0 {
            let detail = format!("the merge command succeeded and wrote nothing to {}", target.display());
            return Err(PayloadFailure::new(exit_codes::NO_OUTPUT, detail));
        }
        if let Some(contents) = contents.filter(|contents| contents.events != self.event_count()) {
            let detail =
                format!("the merge command wrote {} events out of {}", contents.events, self.event_count());
            return Err(PayloadFailure::new(exit_codes::MERGE_INPUT, detail));
        }
        // It may have replaced the file: the new one must be on disk.
        let sync = || fs::File::open(draft.path())?.sync_all();
        sync().and_then(|()| draft.publish().map(drop)).map_err(|error| to_failure(&error))?;
        Ok(sum)
    }

    fn write_list(&self, work_dir: &Path) -> Result<PathBuf, PayloadFailure> {
        let manifest = &self.workspace.manifest;
        let name = format!(
            "windlass-merge-{}-{}-{}-{}.txt",
            manifest.tag, manifest.unit, self.output.tier, self.number
        );
        let path = work_dir.join(name);
        let paths = self.sources.iter().map(|source| source.path.to_string_lossy());
        let text = paths.fold(String::new(), |text, path| text + &path + "\n");
        let written = fs::create_dir_all(work_dir).and_then(|()| fs::write(&path, text));
        written.map_err(|error| PayloadFailure::from_io(exit_codes::STORAGE, "write", &path, &error))?;
        Ok(path)
    }
}

/// Reads a file, passes its pieces on, and compares it with its report. Only event files have a countable
/// number of events.
fn verify_source(
    source: &MergeSource<'_>,
    mut each: impl FnMut(&[u8]) -> std::io::Result<()>,
) -> Result<(), PayloadFailure> {
    let MergeSource { node, file, path } = source;
    let (mut sum, mut counter) = (FileChecksum::default(), EventCounter::default());
    read_chunks(path, |piece| {
        sum.add(piece);
        counter.add(piece);
        each(piece)
    })
    .map_err(|error| PayloadFailure::from_io(exit_codes::MERGE_INPUT, "read", path, &error))?;
    let wrong = |what: &str, found: &dyn std::fmt::Display, expected: &dyn std::fmt::Display| {
        let detail = format!(
            "{} of node {node} differs from the report: {what} {found}, reported {expected}",
            path.display()
        );
        PayloadFailure::new(exit_codes::MERGE_INPUT, detail)
    };
    if sum.size != file.size {
        return Err(wrong("size", &sum.size, &file.size));
    }
    if sum.adler32() != file.adler32 {
        return Err(wrong("adler32", &sum.adler32(), &file.adler32));
    }
    match counter.finish() {
        Some(contents)
            if file.events_from != EventCountSource::Expected && contents.events != file.events =>
        {
            Err(wrong("events", &contents.events, &file.events))
        }
        _ => Ok(()),
    }
}

/// Only text can be concatenated: programs read only the first of several concatenated binary files.
fn binary_source_error(source: &MergeSource<'_>) -> PayloadFailure {
    let message = format!(
        "{} of node {} is a binary file, and binary files are not concatenated: name a command that merges them in \
         `merge.command` (for ROOT files `hadd -f $WINDLASS_OUTPUT $(cat $WINDLASS_INPUTS)`)",
        source.path.display(),
        source.node
    );
    PayloadFailure::new(exit_codes::CONFIGURATION, message)
}

fn read_and_count(
    path: &Path,
) -> std::io::Result<(FileChecksum, Option<crate::event_files::EventFileContents>)> {
    let (mut sum, mut counter) = (files::FileChecksum::default(), EventCounter::default());
    read_chunks(path, |piece| {
        sum.add(piece);
        counter.add(piece);
        Ok(())
    })?;
    Ok((sum, counter.finish()))
}
