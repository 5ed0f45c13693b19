//! Runs a competitor once and measures it: wall time, CPU, memory, disk.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::shell;

/// The PATH of every competitor and its jobs. Short and the same for all: a long PATH makes each `exec` of `sh`
/// more expensive.
pub(super) const PATH: &str = "/usr/bin:/bin";

/// The timeout of a run; a peer that hangs becomes a row that says so.
const LIMIT_SECONDS: u32 = 900;

/// The two compiled C programs.
#[derive(Debug)]
pub(super) struct NativeTools {
    pub(super) measure: PathBuf,
    pub(super) floor: PathBuf,
}

/// The directory of one run: `input` is written first; the competitor runs in `work`, whose contents are
/// counted.
#[derive(Debug)]
pub(super) struct RunDirectory {
    root: PathBuf,
}

/// A command line, relative to the `work` directory of a [`RunDirectory`].
#[derive(Debug, Default)]
pub(super) struct Invocation {
    words: Vec<OsString>,
    environment: Vec<(&'static str, OsString)>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct RunSample {
    pub(super) wall: Duration,
    /// User and system time of the competitor with its jobs.
    pub(super) cpu: Duration,
    /// The peak of the largest process.
    pub(super) peak_rss: u64,
    /// The disk space that the run added: bytes allocated, and files.
    pub(super) disk: u64,
    pub(super) files: u64,
}

impl NativeTools {
    /// Compiles both into `folder`. A C compiler is present: the bundled SQLite needs it as well.
    pub(super) fn build(folder: &Path) -> Result<NativeTools> {
        fs::create_dir_all(folder)?;
        let compile = |name: &str, source: &str| -> Result<PathBuf> {
            let file = folder.join(format!("{name}.c"));
            fs::write(&file, source)?;
            let program = folder.join(name);
            shell::output(Command::new("cc").args(["-O2", "-o"]).arg(&program).arg(&file)).with_context(
                || format!("cannot compile the benchmark's {name}.c; install a C compiler (gcc)"),
            )?;
            Ok(program)
        };
        Ok(NativeTools {
            measure: compile("measure", include_str!("native/measure.c"))?,
            floor: compile("floor", include_str!("native/floor.c"))?,
        })
    }
}

impl RunDirectory {
    pub(super) fn create(root: PathBuf) -> Result<RunDirectory> {
        let place = RunDirectory { root };
        fs::create_dir_all(place.root.join("input"))?;
        fs::create_dir_all(place.work())?;
        Ok(place)
    }

    pub(super) fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    /// Writes an input file and returns its path as seen from the work directory.
    pub(super) fn write_input(&self, name: &str, text: &str) -> Result<String> {
        let file = self.root.join("input").join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        Ok(format!("../input/{name}"))
    }
}

impl Invocation {
    pub(super) fn new<W: Into<OsString>>(words: impl IntoIterator<Item = W>) -> Invocation {
        Invocation { words: words.into_iter().map(Into::into).collect(), environment: Vec::new() }
    }

    pub(super) fn with(mut self, variable: &'static str, value: impl Into<OsString>) -> Invocation {
        self.environment.push((variable, value.into()));
        self
    }

    /// The same command line for a plain [`Command`], for queries that are not timed.
    pub(super) fn command(&self, place: &RunDirectory) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        self.set_directory_and_environment(&mut command, place);
        command
    }

    fn set_directory_and_environment(&self, command: &mut Command, place: &RunDirectory) {
        command.env_clear().env("PATH", PATH).env("LANG", "C").env("HOME", place.work());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.current_dir(place.work()).stdin(Stdio::null());
    }
}

/// Runs and measures the command; an exit code other than 0 is an error that quotes the end of its output.
pub(super) fn run(native: &NativeTools, invocation: &Invocation, place: &RunDirectory) -> Result<RunSample> {
    let figures = place.root.join("figures");
    let last_words = place.root.join("stderr");
    let mut command = Command::new(&native.measure);
    command.arg(&figures).arg(LIMIT_SECONDS.to_string()).args(&invocation.words);
    invocation.set_directory_and_environment(&mut command, place);
    command.stdout(File::create(place.root.join("stdout"))?).stderr(File::create(&last_words)?);
    let before = occupied(&place.work())?;
    settle_disk();
    let status = command.status().context("cannot start the benchmark's `measure`")?;
    if !status.success() {
        bail!("could not be measured ({status}){}", quote_end(&last_words));
    }
    let figures = MeasuredFigures::parse(&fs::read_to_string(&figures)?)?;
    if let Some(trouble) = figures.trouble() {
        bail!("{trouble}{}", quote_end(&last_words));
    }
    let after = occupied(&place.work())?;
    Ok(RunSample {
        wall: figures.wall,
        cpu: figures.user + figures.system,
        peak_rss: figures.max_rss_kib * 1024,
        disk: after.bytes.saturating_sub(before.bytes),
        files: after.files.saturating_sub(before.files),
    })
}

/// Syncs the disk, so that no competitor pays for the writes of the previous one.
fn settle_disk() {
    shell::succeeds(&mut Command::new("sync"));
}

#[derive(Debug, Default)]
struct DiskUse {
    /// The allocated size, directories included, because a directory with many entries is not small.
    bytes: u64,
    files: u64,
}

fn occupied(root: &Path) -> Result<DiskUse> {
    let mut occupied = DiskUse::default();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        occupied.bytes += fs::metadata(&folder)?.blocks() * 512;
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
            let entry = entry?;
            let found = entry.metadata()?;
            if found.is_dir() {
                folders.push(entry.path());
            } else {
                occupied.bytes += found.blocks() * 512;
                occupied.files += 1;
            }
        }
    }
    Ok(occupied)
}

/// The output of `measure`.
#[derive(Debug, PartialEq)]
struct MeasuredFigures {
    wall: Duration,
    user: Duration,
    system: Duration,
    max_rss_kib: u64,
    timed_out: bool,
    exit: i64,
    signal: i64,
}

impl MeasuredFigures {
    fn parse(text: &str) -> Result<MeasuredFigures> {
        let figure = |name: &str| -> Result<i64> {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            let (_, value) =
                lines.find(|(key, _)| *key == name).with_context(|| format!("no figure {name}"))?;
            value.parse().with_context(|| format!("figure {name} is `{value}`"))
        };
        Ok(MeasuredFigures {
            wall: Duration::from_nanos(figure("wall_ns")? as u64),
            user: Duration::from_micros(figure("user_us")? as u64),
            system: Duration::from_micros(figure("system_us")? as u64),
            max_rss_kib: figure("max_rss_kib")? as u64,
            timed_out: figure("timed_out")? != 0,
            exit: figure("exit")?,
            signal: figure("signal")?,
        })
    }

    fn trouble(&self) -> Option<String> {
        match self {
            MeasuredFigures { timed_out: true, .. } => Some(format!("gave up after {LIMIT_SECONDS} s")),
            MeasuredFigures { signal: 1.., .. } => Some(format!("died of signal {}", self.signal)),
            MeasuredFigures { exit: 0, .. } => None,
            _ => Some(format!("exit code {}", self.exit)),
        }
    }
}

/// `: ` and the last line that is not empty, if there is one.
fn quote_end(file: &Path) -> String {
    let text = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    last.map(|line| format!(": {line}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A separate folder below the target directory, removed when the test ends.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let folder = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            Scratch(folder)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).ok();
        }
    }

    const FIGURES: &str =
        "wall_ns 1500000\nuser_us 20\nsystem_us 30\nmax_rss_kib 7\ntimed_out 0\nexit 0\nsignal 0\n";

    #[test]
    fn figures_are_parsed_by_name() {
        let figures = MeasuredFigures::parse(FIGURES).unwrap();
        assert_eq!(figures.wall, Duration::from_micros(1500));
        assert_eq!((figures.user + figures.system, figures.max_rss_kib), (Duration::from_micros(50), 7));
        assert_eq!(figures.trouble(), None);
        assert!(MeasuredFigures::parse("wall_ns 1\n").unwrap_err().to_string().contains("user_us"));
    }

    #[test]
    fn bad_ends_are_distinguished() {
        for (change, trouble) in [
            (("exit 0", "exit 3"), "exit code 3"),
            (("signal 0", "signal 9"), "died of signal 9"),
            (("timed_out 0", "timed_out 1"), "gave up"),
        ] {
            let figures = MeasuredFigures::parse(&FIGURES.replace(change.0, change.1)).unwrap();
            assert!(figures.trouble().unwrap().contains(trouble));
        }
    }

    #[test]
    fn run_measures_memory_and_written_files() {
        let scratch = Scratch::new("measured");
        let native = NativeTools::build(&scratch.0.join("native")).unwrap();
        let place = RunDirectory::create(scratch.0.join("run")).unwrap();
        let script = "head -c 100000 /dev/zero > zeros; mkdir sub; echo $WHO > sub/who";
        let sample = run(&native, &Invocation::new(["sh", "-c", script]).with("WHO", "me"), &place).unwrap();
        assert_eq!(sample.files, 2);
        assert!(sample.disk >= 100_000, "{sample:?}");
        // The memory of the shell itself, not that of the test runner above it.
        assert!((100_000..20_000_000).contains(&sample.peak_rss), "{sample:?}");
        assert_eq!(fs::read_to_string(place.work().join("sub/who")).unwrap(), "me\n");
    }

    #[test]
    fn failure_quotes_last_line_of_stderr() {
        let scratch = Scratch::new("failure");
        let native = NativeTools::build(&scratch.0.join("native")).unwrap();
        let place = RunDirectory::create(scratch.0.join("run")).unwrap();
        let invocation = Invocation::new(["sh", "-c", "echo first >&2; echo no luck >&2; exit 4"]);
        let error = run(&native, &invocation, &place).unwrap_err().to_string();
        assert_eq!(error, "exit code 4: no luck");
    }

    #[test]
    fn floor_runs_every_line_and_reports_failure() {
        let scratch = Scratch::new("floor");
        let native = NativeTools::build(&scratch.0.join("native")).unwrap();
        let place = RunDirectory::create(scratch.0.join("run")).unwrap();
        let commands =
            place.write_input("commands", "echo a >> seen\necho b >> seen\necho c >> seen\n").unwrap();
        run(
            &native,
            &Invocation::new([native.floor.clone().into(), "2".into(), OsString::from(commands)]),
            &place,
        )
        .unwrap();
        assert_eq!(fs::read_to_string(place.work().join("seen")).unwrap().lines().count(), 3);

        let failing = place.write_input("failing", "true\nfalse\n").unwrap();
        let error = run(
            &native,
            &Invocation::new([native.floor.clone().into(), "2".into(), OsString::from(failing)]),
            &place,
        );
        assert_eq!(error.unwrap_err().to_string(), "exit code 1");
    }
}
