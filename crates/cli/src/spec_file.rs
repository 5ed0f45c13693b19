//! Creates a workflow in the store from a spec file. Shared by `create` and `run`.

use crate::args::OutputDirArgs;
use crate::context::CliContext;
use crate::error::CliError;
use crate::job_logs;
use rustix::fs::Access;
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use windlass_insight::workflow_creation::{self, ReusedJobs, WorkflowCreationOptions};
use windlass_spec::{DiagnosticReport, ResolvedWorkflow, SpecAttachments, SpecSource};
use windlass_store::Store;
use windlass_store::model::WorkflowRow;
use windlass_types::{Timestamp, WorkflowId};

/// The text of a spec with its origin.
#[derive(Clone, Debug)]
pub(crate) struct SpecFile {
    /// As typed, for messages.
    name: String,
    /// Absolute; `None` if it came from stdin.
    path: Option<PathBuf>,
    bytes: Vec<u8>,
    /// Files that the spec reads, each with the digest of its contents; known after loading.
    attached: OnceCell<BTreeMap<String, String>>,
}

impl SpecFile {
    /// Reads the file, or stdin for `-`.
    pub(crate) fn read(cwd: &Path, spec: &Path) -> Result<Self, CliError> {
        if spec == Path::new("-") {
            let mut bytes = Vec::new();
            let read = std::io::stdin().lock().read_to_end(&mut bytes);
            read.map_err(|e| CliError::io(format!("cannot read the spec from stdin: {e}")))?;
            return Ok(Self { name: "<stdin>".to_owned(), path: None, bytes, attached: OnceCell::new() });
        }
        let path = cwd.join(spec);
        let bytes = std::fs::read(&path).map_err(|e| read_error(spec, &e))?;
        let name = spec.display().to_string();
        Ok(Self { name, path: Some(normalize_path(&path)), bytes, attached: OnceCell::new() })
    }

    /// The same file with another text, which has not been written.
    pub(crate) fn with_text(&self, text: String) -> Self {
        let (name, path) = (self.name.clone(), self.path.clone());
        Self { name, path, bytes: text.into_bytes(), attached: OnceCell::new() }
    }

    /// Parses the spec; returns all errors at once.
    pub(crate) fn load(&self) -> Result<ResolvedWorkflow<'_>, CliError> {
        let beside = self.path.as_deref().and_then(Path::parent).unwrap_or(Path::new("."));
        let working_directory = std::env::current_dir().ok();
        let beside =
            SpecFileAttachments { directory: beside, working_directory, files_read: RefCell::default() };
        let loaded = windlass_spec::load_spec(self.source(), &beside);
        self.attached.get_or_init(|| beside.files_read.take());
        Ok(loaded?)
    }

    /// The text and its format.
    pub(crate) fn source(&self) -> SpecSource<'_> {
        SpecSource::new(&self.name, &self.bytes)
    }

    /// The digest of the text and the files that it reads; equal on all machines.
    pub(crate) fn digest(&self) -> String {
        let text = windlass_types::digest_bytes(&self.bytes);
        let Some(attached) = self.attached().filter(|attached| !attached.is_empty()) else { return text };
        let beside = attached.iter().map(|(path, digest)| format!("\n{digest} {path}"));
        windlass_types::digest_bytes((text + &beside.collect::<String>()).as_bytes())
    }

    /// A text that cannot refer to other files is not parsed for this, which saves time for a million jobs.
    fn attached(&self) -> Option<&BTreeMap<String, String>> {
        if self.attached.get().is_none() && self.may_name_files() {
            // Errors are reported when the workflow is created.
            drop(self.load());
        }
        self.attached.get()
    }

    /// References may also be written with escapes: `"\u0040list.txt"`.
    fn may_name_files(&self) -> bool {
        let mentions = |word: &[u8]| self.bytes.windows(word.len()).any(|part| part == word);
        ["@", "parameters_file", "\\u", "\\U", "\\x"].iter().any(|word| mentions(word.as_bytes()))
    }

    /// As typed.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }
}

/// The canonical path of a file. A link keeps its own name, because the files of a spec are searched next to
/// the link, not next to its target.
fn normalize_path(path: &Path) -> PathBuf {
    let directory = path.parent().and_then(|directory| directory.canonicalize().ok());
    match (directory, path.file_name()) {
        (Some(directory), Some(name)) => directory.join(name),
        _ => path.to_owned(),
    }
}

/// Files beside a spec file, or below the working directory, where Torc searches.
struct SpecFileAttachments<'a> {
    directory: &'a Path,
    working_directory: Option<PathBuf>,
    /// The files read, with the digests of their contents.
    files_read: RefCell<BTreeMap<String, String>>,
}

impl SpecAttachments for SpecFileAttachments<'_> {
    fn read_file(&self, path: &str) -> std::io::Result<Vec<u8>> {
        let contents =
            std::fs::read(self.directory.join(path)).or_else(|error| match &self.working_directory {
                Some(other) if error.kind() == std::io::ErrorKind::NotFound => {
                    std::fs::read(other.join(path)).map_err(|_| error)
                }
                _ => Err(error),
            })?;
        self.files_read.borrow_mut().insert(path.to_owned(), windlass_types::digest_bytes(&contents));
        Ok(contents)
    }
}

/// Warnings about a spec, each with position and remedy on one line.
pub(crate) fn warnings(workflow: &ResolvedWorkflow<'_>) -> Vec<String> {
    workflow.warning_diagnostics().reports().iter().map(render_warning).collect()
}

/// `sim.yaml:3:5: message; help`.
pub(crate) fn render_warning(report: &DiagnosticReport) -> String {
    let place = match (report.line, report.column) {
        (Some(line), Some(column)) => format!("{}:{line}:{column}", report.source),
        _ => report.source.clone(),
    };
    let help = report.help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
    format!("{place}: {}{help}", report.message)
}

/// The newest workflow that this file created in this directory.
pub(crate) fn newest_workflow_of(
    store: &dyn Store,
    file: &SpecFile,
    directory: &Path,
) -> Result<Option<WorkflowRow>, CliError> {
    let Some(path) = file.path() else { return Ok(None) };
    // An imported workflow was not created from a text and is unrelated to this file.
    let from_here = |row: &WorkflowRow| {
        row.spec_digest.is_some()
            && row.spec_path.as_deref().map(Path::new) == Some(path)
            && Path::new(&row.submission_dir) == directory
    };
    Ok(store.workflows()?.into_iter().filter(from_here).max_by_key(|row| row.id))
}

/// Stores the workflow of a spec file. Reused jobs are completed from the start.
pub(crate) fn create_from_spec(
    store: &dyn Store,
    file: &SpecFile,
    workflow: &ResolvedWorkflow<'_>,
    reused: Option<&ReusedJobs>,
    submission_dir: &Path,
    output_dir: &Path,
    now: Timestamp,
) -> Result<WorkflowId, CliError> {
    let origin = WorkflowCreationOptions {
        user: &current_user(),
        submission_dir: path_to_utf8(submission_dir)?,
        output_dir: path_to_utf8(output_dir)?,
        spec_path: file.path().map(path_to_utf8).transpose()?,
        spec_digest: &file.digest(),
    };
    Ok(workflow_creation::create_workflow(store, workflow, origin, reused, now)?)
}

/// The absolute log directory, created if missing. Determined before a workflow is created that could not use
/// it. If the default directory holds the logs of another database, a directory beside it is named after this
/// database.
pub(crate) fn output_directory(ctx: &CliContext, args: &OutputDirArgs) -> Result<PathBuf, CliError> {
    // The database is recorded in the directory.
    let database = PathBuf::from(ctx.database_name());
    let asked = &args.output_dir;
    let mut taken = match claim_directory(&ctx.cwd, asked, &database)? {
        OutputDirClaim::Ours(directory) => return Ok(directory),
        OutputDirClaim::OwnedBy(other) => other,
    };
    if asked == Path::new(OutputDirArgs::DEFAULT_DIR)
        && let Some(name) = short_name(&ctx.database_name())
    {
        let beside = PathBuf::from(format!("{}.{name}", OutputDirArgs::DEFAULT_DIR));
        match claim_directory(&ctx.cwd, &beside, &database)? {
            OutputDirClaim::Ours(directory) => return Ok(directory),
            OutputDirClaim::OwnedBy(other) => taken = other,
        }
    }
    Err(CliError::refused(format!(
        "{} contains the logs of another database, {}; logs of both would overwrite each other",
        asked.display(),
        taken.display()
    ))
    .with_hint("use another directory with --output-dir"))
}

/// The name for the directory: host and port of a server, the name of a PostgreSQL database, or the file name
/// without its extension.
fn short_name(database: &str) -> Option<&str> {
    let Some((scheme, address)) = database.split_once("://") else {
        return Path::new(database).file_stem()?.to_str();
    };
    let address = address.split(['?', '#']).next()?.trim_end_matches('/');
    let (authority, path) = address.split_once('/').unwrap_or((address, ""));
    let host = authority.rsplit('@').next()?;
    let name = if scheme.starts_with("http") { host } else { path.rsplit('/').next()? };
    Some(if name.is_empty() { host } else { name }).filter(|name| !name.is_empty())
}

enum OutputDirClaim {
    Ours(PathBuf),
    OwnedBy(PathBuf),
}

fn claim_directory(cwd: &Path, asked: &Path, database: &Path) -> Result<OutputDirClaim, CliError> {
    let directory = cwd.join(asked);
    let logs = directory.join(job_logs::LOG_FOLDER);
    let claimed = std::fs::create_dir_all(&logs)
        .and_then(|()| Ok(rustix::fs::access(&logs, Access::WRITE_OK | Access::EXEC_OK)?))
        .and_then(|()| job_logs::claim_folder(&logs, database));
    match claimed {
        Ok(None) => Ok(OutputDirClaim::Ours(directory)),
        Ok(Some(other)) => Ok(OutputDirClaim::OwnedBy(other)),
        Err(e) => Err(CliError::io(format!("cannot use {} as the output directory: {e}", asked.display()))
            .with_hint("give a writable directory with --output-dir")),
    }
}

/// The store keeps paths as text.
pub(crate) fn path_to_utf8(path: &Path) -> Result<&str, CliError> {
    path.to_str().ok_or_else(|| {
        CliError::user(format!("the path {} is not UTF-8", path.display()))
            .with_hint("use a directory with a UTF-8 name")
    })
}

/// The user who runs this process.
pub(crate) fn current_user() -> String {
    let named =
        ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok()).filter(|n| !n.is_empty());
    let uid = rustix::process::getuid().as_raw();
    let noted = || user_name_from_passwd(&std::fs::read_to_string("/etc/passwd").unwrap_or_default(), uid);
    named.or_else(noted).unwrap_or_else(|| format!("uid {uid}"))
}

/// The name of a user, from a file like `/etc/passwd`.
fn user_name_from_passwd(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

/// Finds a spec with the same name and another extension, or with a similar name, in the directory of a missing one.
fn find_similar_spec(spec: &Path) -> Option<PathBuf> {
    const EXTENSIONS: [&str; 6] = ["yaml", "yml", "json", "json5", "kdl", "toml"];
    let other_format = EXTENSIONS.map(|extension| spec.with_extension(extension));
    if let Some(found) = other_format.into_iter().find(|path| path.is_file()) {
        return Some(found);
    }
    let directory = spec.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let names: Vec<String> = std::fs::read_dir(directory)
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| {
            Path::new(name).extension().is_some_and(|found| EXTENSIONS.iter().any(|known| found == *known))
        })
        .collect();
    let near = windlass_spec::nearest_name(spec.file_name()?.to_str()?, names.iter().map(String::as_str))?;
    Some(spec.with_file_name(near))
}

fn read_error(spec: &Path, error: &std::io::Error) -> CliError {
    let message = format!("cannot read the spec {}: {error}", spec.display());
    match error.kind() {
        std::io::ErrorKind::NotFound => CliError::user(message).with_hint(match find_similar_spec(spec) {
            Some(similar) => format!("did you mean {}?", similar.display()),
            None => "relative paths are relative to the current directory; `windlass exec -- CMD` runs a command without a spec".to_owned(),
        }),
        std::io::ErrorKind::IsADirectory => CliError::user(message).with_hint("give the file in it"),
        _ => CliError::io(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_spec_is_suggested_for_a_missing_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("sim.yaml"), "").unwrap();
        assert_eq!(find_similar_spec(&path("sim.yml")), Some(path("sim.yaml")));
        assert_eq!(find_similar_spec(&path("smi.yaml")), Some(path("sim.yaml")));
        assert_eq!(find_similar_spec(&path("other.toml")), None);
    }

    #[test]
    fn log_directory_is_named_after_database_or_server() {
        for (database, name) in [
            ("/a/b.db", "b"),
            ("http://127.0.0.1:8080", "127.0.0.1:8080"),
            ("https://user@host.example:8080/windlass/", "host.example:8080"),
            ("postgres://ada:pw@db.example:5432/grid?sslmode=require", "grid"),
            ("postgres://db.example", "db.example"),
        ] {
            assert_eq!(short_name(database), Some(name), "{database}");
        }
    }
}
