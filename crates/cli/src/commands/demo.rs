//! `windlass demo`: a small workflow that is killed on purpose in the middle, and resumed.

use crate::args::run::{DemoArgs, DemoSubcommand};
use crate::context::{self, CliContext};
use crate::error::{CliError, CliExit};
use crate::ui::text;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;
use windlass_store::Store;
use windlass_store::sqlite::{OpenMode, SqliteStore};
use windlass_types::{JobStatus, StatusCounts, WorkflowId};

const THROW_JOBS: usize = 12;
/// Number of completed jobs at which the engine is killed.
const KILL_AFTER_JOBS: u64 = 5;
const POLL_INTERVAL: Duration = Duration::from_millis(20);

const THROW_SCRIPT: &str = r#"# Throws 100,000 darts at a square and counts those inside the circle.
echo "$WINDLASS_JOB_NAME" >> ran.txt
awk -v seed="$1" 'BEGIN { srand(seed); for (i = 0; i < 100000; i++) { x = rand(); y = rand(); if (x*x + y*y < 1) hits++ } print hits }' > "hits/$1"
sleep 0.4
"#;

pub(crate) fn run(ctx: &CliContext, args: &DemoArgs) -> Result<CliExit, CliError> {
    ctx.refuse_server("the demo runs on this machine, with its own database")?;
    if let Some(DemoSubcommand::Requests(place)) = &args.verb {
        return super::request::run_demo(ctx, &make_directory(place.dir.as_deref())?);
    }
    let demo = DemoRun::create(args.place.dir.as_deref(), ctx.ui.is_quiet())?;
    ctx.ui.print_note(&format!("{}\n{}:\n", introduction_text(), demo.dir.join("demo.yaml").display()));
    ctx.ui.print_note(&indent_text(&spec_excerpt(&spec_text())));

    ctx.ui.print_note("\n1. Run it.          $ windlass run demo.yaml\n");
    let mut first = demo.start_windlass(&["run", "demo.yaml"])?;
    let counts = demo.wait_until_completed(KILL_AFTER_JOBS, &mut first)?;
    first.kill().map_err(|e| CliError::io(format!("cannot kill the run: {e}")))?;
    demo.wait_for_exit(first)?;

    ctx.ui.print_note(&kill_text(&counts));
    ctx.ui.print_note("3. Resume it.       $ windlass resume\n");
    let resumed = demo.start_windlass(&["resume"])?;
    let status = demo.wait_for_exit(resumed)?;
    if !status.success() {
        return Err(CliError::internal(format!("the demo did not complete: {status}"))
            .with_hint(format!("inspect {}", demo.dir.display())));
    }
    demo.finish(ctx)
}

fn introduction_text() -> String {
    format!(
        "A small workflow: one job prepares, {THROW_JOBS} jobs throw darts in parallel, and one\n\
         job counts the hits to estimate π. It is written in"
    )
}

fn kill_text(counts: &StatusCounts) -> String {
    format!(
        "\n2. The run was killed on purpose, with kill -9, after {} of {} jobs.\n\
         \u{20}  The database is on disk, so no completed work is lost.\n",
        counts.get(JobStatus::Completed),
        counts.total()
    )
}

fn conclusion_text(estimate: &str, again: u64) -> String {
    let were = if again == 1 { "was" } else { "were" };
    format!(
        "\nπ is about {estimate}. No completed job ran a second time;\n\
         {} that {were} running when the run was killed\n\
         {were} started again.\n",
        text::render_count(again, "job")
    )
}

struct DemoRun {
    dir: PathBuf,
    database: PathBuf,
    exe: PathBuf,
    quiet: bool,
}

impl DemoRun {
    fn create(dir: Option<&Path>, quiet: bool) -> Result<Self, CliError> {
        let exe = std::env::current_exe().map_err(|e| demo_error("find windlass itself", &e))?;
        let dir = make_directory(dir)?;
        // Created first; otherwise a database in a parent directory would be used.
        let database = context::make_folder(&dir)?.join(context::DATABASE_FILE);
        std::fs::write(dir.join("demo.yaml"), spec_text()).map_err(|e| demo_error("write demo.yaml", &e))?;
        std::fs::write(dir.join("throw.sh"), THROW_SCRIPT).map_err(|e| demo_error("write throw.sh", &e))?;
        Ok(Self { dir, database, exe, quiet })
    }

    fn start_windlass(&self, args: &[&str]) -> Result<Child, CliError> {
        Command::new(&self.exe)
            .args(args)
            .args(self.quiet.then_some("--quiet"))
            .current_dir(&self.dir)
            // Overrides all settings.
            .env("WINDLASS_DB", &self.database)
            .spawn()
            .map_err(|e| CliError::io(format!("cannot start {}: {e}", self.exe.display())))
    }

    fn wait_for_exit(&self, mut child: Child) -> Result<std::process::ExitStatus, CliError> {
        child.wait().map_err(|e| CliError::io(format!("cannot wait for {}: {e}", self.exe.display())))
    }

    /// Polls the database, as `windlass status` does, until this many jobs are completed.
    fn wait_until_completed(&self, jobs: u64, run: &mut Child) -> Result<StatusCounts, CliError> {
        loop {
            let counts = self.load_counts();
            if counts.get(JobStatus::Completed) >= jobs {
                return Ok(counts);
            }
            if let Ok(Some(status)) = run.try_wait() {
                return Err(CliError::internal(format!("the demo ended early: {status}"))
                    .with_hint(format!("inspect {}", self.dir.display())));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Empty until the database exists.
    fn load_counts(&self) -> StatusCounts {
        let opened = SqliteStore::open(&self.database, OpenMode::ReadOnly).ok();
        let row = opened.and_then(|opened| opened.store.workflow(WorkflowId(1)).ok().flatten());
        row.map(|row| row.counts).unwrap_or_default()
    }

    fn finish(&self, ctx: &CliContext) -> Result<CliExit, CliError> {
        let read = |name: &str| {
            std::fs::read_to_string(self.dir.join(name))
                .map_err(|e| CliError::internal(format!("the demo did not write {name}: {e}")))
        };
        let (estimate, ran) = (read("pi.txt")?, read("ran.txt")?);
        let runs: Vec<&str> = ran.lines().collect();
        let mut distinct = runs.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let again = runs.len() - distinct.len();
        ctx.ui.print_note(&conclusion_text(estimate.trim(), again as u64));
        let mut next = format!("Try next:\n  cd {}\n", self.dir.display());
        if !self.is_on_path() {
            writeln!(next, "  alias windlass={}", self.exe.display()).unwrap_or_default();
        }
        for (command, what) in [
            ("status", "show the progress"),
            ("jobs results", "list all attempts with time and memory"),
            ("logs estimate", "show the output of a job"),
            ("run --new demo.yaml", "run it again; press Ctrl-C, then `resume`"),
            ("exec --help", "run a list of commands"),
        ] {
            writeln!(next, "  windlass {command:<22} {what}").unwrap_or_default();
        }
        ctx.ui.print_note(next.trim_end());
        Ok(CliExit::Success)
    }

    /// Whether typing `windlass` starts this executable.
    fn is_on_path(&self) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .map(|dir| dir.join("windlass"))
            .any(|found| found.canonicalize().is_ok_and(|found| found == self.exe))
    }
}

fn demo_error(what: &str, error: &io::Error) -> CliError {
    CliError::io(format!("cannot {what} for the demo: {error}"))
}

/// An unused directory.
fn make_directory(dir: Option<&Path>) -> Result<PathBuf, CliError> {
    let dir = match dir {
        Some(dir) => dir.to_owned(),
        None => create_temp_directory().map_err(|e| demo_error("create a directory", &e))?,
    };
    std::fs::create_dir_all(&dir).map_err(|e| demo_error("create a directory", &e))?;
    let dir = dir.canonicalize().map_err(|e| demo_error("find the directory", &e))?;
    if dir.join(".windlass").exists() {
        return Err(CliError::refused(format!("{} is already in use", dir.display()))
            .with_hint("give the demo an empty directory"));
    }
    Ok(dir)
}

fn create_temp_directory() -> io::Result<PathBuf> {
    let base = std::env::temp_dir();
    for n in 1..1000 {
        let dir = base.join(format!("windlass-demo-{n}"));
        match std::fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("remove {}/windlass-demo-*", base.display())))
}

fn spec_text() -> String {
    let mut spec = String::from("name: demo\njobs:\n  - name: prepare\n    command: mkdir -p hits\n");
    let names: Vec<String> = (1..=THROW_JOBS).map(|n| format!("throw_{n:02}")).collect();
    for (n, name) in (1..).zip(&names) {
        write!(spec, "  - name: {name}\n    command: sh throw.sh {n}\n    depends_on: [prepare]\n")
            .unwrap_or_default();
    }
    let total = THROW_JOBS * 100_000;
    write!(
        spec,
        "  - name: estimate\n    command: |\n      awk '{{ n += $1 }} END {{ print 4 * n / {total} }}' hits/* | tee pi.txt\n    depends_on: [{}]\n",
        names.join(", ")
    )
    .unwrap_or_default();
    spec
}

/// The first jobs and the last one, as an illustration.
fn spec_excerpt(spec: &str) -> String {
    let lines: Vec<&str> = spec.lines().collect();
    let (head, tail) = (&lines[..10], &lines[lines.len() - 4..]);
    let shorten = |line: &str| match line.split_once(", throw_03") {
        Some((start, _)) => format!("{start}, …]"),
        None => line.to_owned(),
    };
    head.iter()
        .copied()
        .map(str::to_owned)
        .chain(["  …".to_owned()])
        .chain(tail.iter().map(|l| shorten(l)))
        .collect::<Vec<_>>()
        .join("\n")
}

fn indent_text(text: &str) -> String {
    text.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demo_text_fits_terminal_width() {
        let mut counts = StatusCounts::default();
        counts.add(JobStatus::Completed, 12);
        counts.add(JobStatus::Ready, 2);
        for told in [
            introduction_text(),
            kill_text(&counts),
            conclusion_text("3.14159", 12),
            indent_text(&spec_excerpt(&spec_text())),
        ] {
            for line in told.lines() {
                assert!(text::display_width(line) <= 79, "{line}");
            }
        }
    }

    #[test]
    fn spec_excerpt_shows_first_and_last_jobs() {
        let shown = spec_excerpt(&spec_text());
        for part in
            ["name: prepare", "name: throw_01", "  …\n  - name: estimate\n    command: |", "throw_02, …]"]
        {
            assert!(shown.contains(part), "{part}\n{shown}");
        }
    }
}
