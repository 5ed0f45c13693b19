//! `windlass logs bundle`: collects everything needed to diagnose a workflow in one file.

use super::{jobs, results, workflows};
use crate::args::logs::LogBundleArgs;
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::job_logs;
use crate::object_selection;
use crate::spec_file::SpecFile;
use crate::tar::TarArchive;
use crate::ui::listing::ListFields;
use crate::ui::text;
use crate::workflow_view::{self, WorkflowView};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read as _, Seek as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use windlass_store::Store;
use windlass_store::model::{JobFilter, WorkflowRow};
use windlass_types::{Timestamp, WorkflowId};

#[derive(Serialize)]
struct BundleView {
    workflow_id: WorkflowId,
    path: PathBuf,
    files: u64,
}

pub(crate) fn run(ctx: &CliContext, args: &LogBundleArgs) -> Result<CliExit, CliError> {
    let store = ctx.open_read()?;
    let row = object_selection::find_workflow(&*store, &args.workflow)?;
    let folder = ctx.cwd.join(&args.bundle_dir);
    let path = folder.join(format!("wf{}.tar.gz", row.id));
    let failed = |e: io::Error| CliError::io(format!("cannot write {}: {e}", path.display()));
    std::fs::create_dir_all(&folder).map_err(failed)?;
    // Written under a temporary name with restricted permissions: an incomplete bundle never has the final
    // name, and the contents may be secret.
    let unfinished = folder.join(format!(".wf{}.tar.gz.{}", row.id, std::process::id()));
    let written = create_private_file(&unfinished).map_err(failed).and_then(|file| {
        let mut bundle = LogBundle::new(&unfinished, file, &row, ctx.clock.now());
        bundle.add_workflow(ctx, &*store, &row)?;
        bundle.finish().map_err(failed)
    });
    let files = match written {
        Ok(files) => files,
        Err(error) => {
            // The incomplete file is useless; if removing it fails too, the error below is the one to report.
            drop(std::fs::remove_file(&unfinished));
            return Err(error);
        }
    };
    std::fs::rename(&unfinished, &path).map_err(failed)?;
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&BundleView { workflow_id: row.id, path, files })?;
    } else {
        ctx.ui.print_line(&job_logs::short_path(&path, &ctx.cwd))?;
        ctx.ui.print_note(&format!(
            "{} in it; review it before you share it: commands and logs may contain secrets",
            text::render_count(files, "file")
        ));
    }
    Ok(CliExit::Success)
}

fn create_private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

struct LogBundle {
    archive: TarArchive<GzEncoder<BufWriter<File>>>,
    /// Prefix of every name.
    root: String,
    /// Lists are written to this file first, because an archive member must state its length before its
    /// content.
    scratch: PathBuf,
    files: u64,
}

impl LogBundle {
    fn new(path: &Path, file: File, row: &WorkflowRow, now: Timestamp) -> Self {
        let compressed = GzEncoder::new(BufWriter::new(file), Compression::default());
        let seconds = u64::try_from(now.micros() / 1_000_000).unwrap_or(0);
        let mut scratch = path.as_os_str().to_owned();
        scratch.push(".list");
        Self {
            archive: TarArchive::new(compressed, seconds),
            root: format!("wf{}", row.id),
            scratch: scratch.into(),
            files: 0,
        }
    }

    fn add_workflow(
        &mut self,
        ctx: &CliContext,
        store: &dyn Store,
        row: &WorkflowRow,
    ) -> Result<(), CliError> {
        let view =
            WorkflowView::new(row.clone(), workflow_view::has_active_process(store, row), ctx.clock.now());
        let mut views = Some(view);
        self.add_list("workflow.json", |out| {
            let listing = ListFields::new(workflows::FIELDS);
            listing.write_json(out, || Ok(views.take().into_iter().collect()))
        })?;
        let mut pages = jobs::JobPages::new(store, row, JobFilter::default(), 0, None);
        self.add_list("jobs.json", |out| {
            ListFields::new(jobs::FIELDS)
                .write_json(out, || Ok(pages.next_page()?.into_iter().map(Into::into).collect()))
        })?;
        self.add_list("results.json", |out| results::write_all_results(out, store, row, &ctx.cwd))?;
        self.add_spec(ctx, row)?;
        self.add_logs(row)
    }

    /// Includes the spec only if it is unchanged since the workflow was created: another text would mislead,
    /// and may not be a spec at all.
    fn add_spec(&mut self, ctx: &CliContext, row: &WorkflowRow) -> Result<(), CliError> {
        let Some(path) = row.spec_path.as_deref().map(Path::new) else { return Ok(()) };
        let is_it = SpecFile::read(&ctx.cwd, path).is_ok_and(|spec| Some(spec.digest()) == row.spec_digest);
        if !is_it {
            let path = job_logs::short_path(path, &ctx.cwd);
            ctx.ui.print_note(&format!("{path} has changed since the workflow was created, and is left out"));
            return Ok(());
        }
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("txt");
        self.add_file(&format!("spec.{extension}"), path)
    }

    /// Logs of all attempts of all runs, so that they can be compared.
    fn add_logs(&mut self, row: &WorkflowRow) -> Result<(), CliError> {
        let folder = Path::new(&row.output_dir).join(job_logs::LOG_FOLDER);
        let ours = format!("job_wf{}_", row.id);
        let entries = match std::fs::read_dir(&folder) {
            // No output yet, or the file was moved.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(|e| read_error(&folder, &e))?,
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| name.starts_with(&ours)).collect();
        names.sort();
        for name in names {
            self.add_file(&format!("{}/{name}", job_logs::LOG_FOLDER), &folder.join(&name))?;
        }
        Ok(())
    }

    /// Adds a file as it is; a missing file is skipped.
    fn add_file(&mut self, name: &str, path: &Path) -> Result<(), CliError> {
        let file = match File::open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened.map_err(|e| read_error(path, &e))?,
        };
        let size = file.metadata().map_err(|e| read_error(path, &e))?.len();
        self.add_member(name, size, file)
    }

    fn add_list(
        &mut self,
        name: &str,
        write: impl FnOnce(&mut BufWriter<&File>) -> Result<u64, CliError>,
    ) -> Result<(), CliError> {
        let failed = |e: &io::Error| CliError::io(format!("cannot collect {name} for the bundle: {e}"));
        let mut file = create_private_file(&self.scratch).map_err(|e| failed(&e))?;
        // Only this process needs the file, and only while it is open.
        std::fs::remove_file(&self.scratch).map_err(|e| failed(&e))?;
        let mut out = BufWriter::new(&file);
        write(&mut out)?;
        out.flush().map_err(|e| failed(&e))?;
        drop(out);
        let size = file.stream_position().map_err(|e| failed(&e))?;
        file.rewind().map_err(|e| failed(&e))?;
        self.add_member(name, size, file)
    }

    fn add_member(&mut self, name: &str, size: u64, content: File) -> Result<(), CliError> {
        self.files += 1;
        self.archive
            .add_member(&format!("{}/{name}", self.root), size, content.take(size))
            .map_err(|e| CliError::io(format!("cannot add {name} to the bundle: {e}")))
    }

    /// Number of files in the bundle.
    fn finish(self) -> io::Result<u64> {
        let file = self.archive.finish()?.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        Ok(self.files)
    }
}

fn read_error(path: &Path, error: &io::Error) -> CliError {
    CliError::io(format!("cannot read {}: {error}", path.display()))
}
