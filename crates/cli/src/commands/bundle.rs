//! `windlass logs bundle`: all that somebody needs who is to help, in one file.

use super::{jobs, results, workflows};
use crate::args::logs::BundleArgs;
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::job_logs;
use crate::plan::SpecFile;
use crate::select;
use crate::tar::Archive;
use crate::ui::listing::Listing;
use crate::ui::text;
use crate::view::{self, WorkflowView};
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

pub(crate) fn run(ctx: &Context, args: &BundleArgs) -> Result<Exit, CliError> {
    let store = ctx.open_read()?;
    let row = select::workflow(&*store, &args.workflow)?;
    let folder = ctx.cwd.join(&args.bundle_dir);
    let path = folder.join(format!("wf{}.tar.gz", row.id));
    let failed = |e: io::Error| CliError::io(format!("cannot write {}: {e}", path.display()));
    std::fs::create_dir_all(&folder).map_err(failed)?;
    // Nobody finds half a bundle under its name, and what is in it may be secret.
    let unfinished = folder.join(format!(".wf{}.tar.gz.{}", row.id, std::process::id()));
    let written = private(&unfinished).map_err(failed).and_then(|file| {
        let mut bundle = Bundle::new(&unfinished, file, &row, ctx.clock.now());
        bundle.fill(ctx, &*store, &row)?;
        bundle.finish().map_err(failed)
    });
    let files = match written {
        Ok(files) => files,
        Err(error) => {
            // What is left of it is of no use; if it cannot be removed, the error below is the one to tell.
            drop(std::fs::remove_file(&unfinished));
            return Err(error);
        }
    };
    std::fs::rename(&unfinished, &path).map_err(failed)?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&BundleView { workflow_id: row.id, path, files })?;
    } else {
        ctx.ui.print_line(&job_logs::short(&path, &ctx.cwd))?;
        ctx.ui.note(&format!(
            "{} in it; look into it before you give it away: commands and logs may hold secrets",
            text::count(files, "file")
        ));
    }
    Ok(Exit::Success)
}

fn private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

struct Bundle {
    archive: Archive<GzEncoder<BufWriter<File>>>,
    /// In front of every name.
    root: String,
    /// Where lists are gathered first: a member must say how long it is before it begins.
    scratch: PathBuf,
    files: u64,
}

impl Bundle {
    fn new(path: &Path, file: File, row: &WorkflowRow, now: Timestamp) -> Self {
        let compressed = GzEncoder::new(BufWriter::new(file), Compression::default());
        let seconds = u64::try_from(now.micros() / 1_000_000).unwrap_or(0);
        let mut scratch = path.as_os_str().to_owned();
        scratch.push(".list");
        Self {
            archive: Archive::new(compressed, seconds),
            root: format!("wf{}", row.id),
            scratch: scratch.into(),
            files: 0,
        }
    }

    fn fill(&mut self, ctx: &Context, store: &dyn Store, row: &WorkflowRow) -> Result<(), CliError> {
        let view = WorkflowView::new(row.clone(), view::is_run_by_somebody(store, row), ctx.clock.now());
        let mut views = Some(view);
        self.add_list("workflow.json", |out| {
            let listing = Listing::new(workflows::FIELDS);
            listing.write_json(out, || Ok(views.take().into_iter().collect()))
        })?;
        let mut pages = jobs::Pages::new(store, row, JobFilter::default(), 0, None);
        self.add_list("jobs.json", |out| {
            Listing::new(jobs::FIELDS)
                .write_json(out, || Ok(pages.next()?.into_iter().map(Into::into).collect()))
        })?;
        self.add_list("results.json", |out| results::write_all(out, store, row, &ctx.cwd))?;
        self.add_spec(ctx, row)?;
        self.add_logs(row)
    }

    /// Only the very text that made the workflow: another one would mislead, and may be no spec at all.
    fn add_spec(&mut self, ctx: &Context, row: &WorkflowRow) -> Result<(), CliError> {
        let Some(path) = row.spec_path.as_deref().map(Path::new) else { return Ok(()) };
        let is_it = SpecFile::read(&ctx.cwd, path).is_ok_and(|spec| Some(spec.digest()) == row.spec_digest);
        if !is_it {
            let path = job_logs::short(path, &ctx.cwd);
            ctx.ui.note(&format!("{path} is not what the workflow was made from any more, and is left out"));
            return Ok(());
        }
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("txt");
        self.add_file(&format!("spec.{extension}"), path)
    }

    /// All attempts of all runs: whoever helps may want to compare.
    fn add_logs(&mut self, row: &WorkflowRow) -> Result<(), CliError> {
        let folder = Path::new(&row.output_dir).join(job_logs::FOLDER);
        let ours = format!("job_wf{}_", row.id);
        let entries = match std::fs::read_dir(&folder) {
            // Nothing was printed yet, or it was moved away.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(|e| unreadable(&folder, &e))?,
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| name.starts_with(&ours)).collect();
        names.sort();
        for name in names {
            self.add_file(&format!("{}/{name}", job_logs::FOLDER), &folder.join(&name))?;
        }
        Ok(())
    }

    /// A file as it is; one that is gone is left out.
    fn add_file(&mut self, name: &str, path: &Path) -> Result<(), CliError> {
        let file = match File::open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened.map_err(|e| unreadable(path, &e))?,
        };
        let size = file.metadata().map_err(|e| unreadable(path, &e))?.len();
        self.add(name, size, file)
    }

    fn add_list(
        &mut self,
        name: &str,
        write: impl FnOnce(&mut BufWriter<&File>) -> Result<u64, CliError>,
    ) -> Result<(), CliError> {
        let failed = |e: &io::Error| CliError::io(format!("cannot gather {name} for the bundle: {e}"));
        let mut file = private(&self.scratch).map_err(|e| failed(&e))?;
        // Only this process needs it, and only as long as it is open.
        std::fs::remove_file(&self.scratch).map_err(|e| failed(&e))?;
        let mut out = BufWriter::new(&file);
        write(&mut out)?;
        out.flush().map_err(|e| failed(&e))?;
        drop(out);
        let size = file.stream_position().map_err(|e| failed(&e))?;
        file.rewind().map_err(|e| failed(&e))?;
        self.add(name, size, file)
    }

    fn add(&mut self, name: &str, size: u64, content: File) -> Result<(), CliError> {
        self.files += 1;
        self.archive
            .add(&format!("{}/{name}", self.root), size, content.take(size))
            .map_err(|e| CliError::io(format!("cannot put {name} into the bundle: {e}")))
    }

    /// How many files are in it.
    fn finish(self) -> io::Result<u64> {
        let file = self.archive.finish()?.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        Ok(self.files)
    }
}

fn unreadable(path: &Path, error: &io::Error) -> CliError {
    CliError::io(format!("cannot read {}: {error}", path.display()))
}
