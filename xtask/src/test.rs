//! `cargo xtask test`: runs every test, also on a machine that has only a Rust toolchain.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow, bail};

use crate::htcondor::PoolInstallation;
use crate::python;
use crate::reqmgr2;
use crate::shell::{self, cargo, run, succeeds};
use crate::slurm;

const HELP: &str = "\
cargo xtask test [ARGS...]: runs every test of the workspace

  1. looks for the programs that the tests start; installs the missing ones as root on Debian,
     otherwise prints the command that does
     reserves the ports of the test servers (as root, where the kernel assigns ports below 32768)
  2. installs cargo-nextest if it is missing (`cargo install cargo-nextest --locked`)
  3. installs Torc's Python client, schemathesis and the SDK of MCP below the target directory (pinned versions),
     while the rest is built
  4. installs an HTCondor pool in /var/tmp/htcondor-pool ($HTCONDOR_POOL_DIR), while the rest is built (once, 2 minutes);
     tests start it, and it is stopped at the end
  5. installs Slurm from Debian's packages, for a cluster in /var/tmp/slurm-cluster ($SLURM_CLUSTER_DIR); tests start it,
     and it is stopped at the end
  6. installs ReqMgr2 in /var/tmp/reqmgr2-server ($REQMGR2_DIR), from PyPI and npm, while the rest is built (once, a
     minute); tests start their own
  7. builds the workspace, so that tests may start the `windlass` binary
  8. cargo test --doc --workspace (left out when ARGS are given: they chose tests by name)
  9. cargo nextest run --workspace ARGS...; without root, or where root may not mount a disk or create a namespace (some
     containers), the tests that need it are skipped, counted and named; two tests run per core, because they wait for
     half of their time

ARGS go to nextest: `cargo xtask test -p windlass-core`, `cargo xtask test kill`, `cargo xtask test --no-capture`.
";

/// A program that the tests or the build start, and its Debian package.
struct RequiredTool {
    program: &'static str,
    package: &'static str,
    needed_for: &'static str,
}

const TOOLS: &[RequiredTool] = &[
    RequiredTool {
        program: "cc",
        package: "gcc",
        needed_for: "building the bundled SQLite and the benchmark's floor",
    },
    RequiredTool { program: "sh", package: "dash", needed_for: "every job" },
    RequiredTool {
        program: "setsid",
        package: "util-linux",
        needed_for: "jobs that leave their process group",
    },
    RequiredTool {
        program: "flock",
        package: "util-linux",
        needed_for: "jobs that notice when two of them overlap",
    },
    RequiredTool {
        program: "python3",
        package: "python3-minimal",
        needed_for: "jobs that take memory, and keep it",
    },
    RequiredTool { program: "awk", package: "mawk", needed_for: "the jobs of the demo" },
    RequiredTool {
        program: "kill",
        package: "procps",
        needed_for: "tests that end a process at a bad moment",
    },
    RequiredTool { program: "mount", package: "mount", needed_for: "a small disk to fill (as root)" },
    RequiredTool { program: "mkfs.ext4", package: "e2fsprogs", needed_for: "a disk that fails (as root)" },
    RequiredTool {
        program: "unshare",
        package: "util-linux",
        needed_for: "a run as in a container (as root)",
    },
    RequiredTool {
        program: "ssh",
        package: "openssh-client",
        needed_for: "workers on machines that ssh reaches",
    },
    RequiredTool {
        program: "sshd",
        package: "openssh-server",
        needed_for: "such a machine, which is this one",
    },
    RequiredTool { program: "xargs", package: "findutils", needed_for: "the benchmark" },
    RequiredTool {
        program: "setpriv",
        package: "util-linux",
        needed_for: "a PostgreSQL that does not run as root",
    },
    RequiredTool { program: "initdb", package: "postgresql", needed_for: "the store on PostgreSQL" },
    RequiredTool {
        program: "debootstrap",
        package: "debootstrap",
        needed_for: "an HTCondor pool, in a Debian of its own",
    },
];

pub(crate) fn main(arguments: &[String]) -> Result<()> {
    if arguments.first().is_some_and(|word| word == "--help" || word == "-h") {
        print!("{HELP}");
        return Ok(());
    }
    provide_tools()?;
    reserve_ports();
    // Before the pool: both install Debian packages, and only one installation can run at a time.
    let _cluster = slurm::can_be_here().then(slurm::provide).transpose()?;
    let pool = may_have_pool().then(PoolInstallation::begin).transpose()?;
    provide_nextest()?;
    // Downloads and compilation use different resources, so they run in parallel.
    thread::scope(|scope| {
        let others = scope.spawn(|| {
            python::provide()?;
            if reqmgr2::can_be_here() { reqmgr2::provide() } else { Ok(()) }
        });
        let built = build(arguments);
        others.join().map_err(|_| anyhow!("an installation panicked"))?.and(built)
    })?;
    let _pool = pool.map(PoolInstallation::finish).transpose()?;
    let mut nextest = cargo(["nextest", "run"]);
    nextest.args(selection(arguments)).args(arguments);
    if let Some(threads) = threads(arguments) {
        nextest.arg(format!("--test-threads={threads}"));
    }
    let left_out: Vec<&str> =
        STAGES.iter().filter(|stage| !(stage.can_be_set)()).map(TestStage::announce).collect();
    if !left_out.is_empty() {
        nextest.args(["-E", &format!("not ({})", left_out.join(" or "))]);
    }
    run(&mut nextest)
}

/// The fixed ports of the test servers: of the HTCondor pool, the Slurm cluster, and `free_port` of the tests.
const TEST_PORTS: &str = "9618,16817-16840,20000-31999";

/// Keeps the kernel from assigning [`TEST_PORTS`] to connections. On Debian it assigns ports from 32768, but some
/// machines are set to assign all ports from 1024; a daemon that starts would then sometimes find its port taken.
fn reserve_ports() {
    let reserved = Path::new("/proc/sys/net/ipv4/ip_local_reserved_ports");
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first: u32 = range.split_whitespace().next().and_then(|port| port.parse().ok()).unwrap_or(32_768);
    if first > 31_999 {
        return;
    }
    let set = fs::read_to_string(reserved).and_then(|old| {
        let old = old.trim();
        let all = if old.is_empty() { TEST_PORTS.to_owned() } else { format!("{old},{TEST_PORTS}") };
        fs::write(reserved, all)
    });
    if let Err(error) = set {
        eprintln!(
            "note: ports {TEST_PORTS} cannot be reserved, so a test server may find its port taken: {error}"
        );
    }
}

/// Builds all programs that tests start, and runs the examples in the documentation, which need nothing else.
fn build(arguments: &[String]) -> Result<()> {
    if !arguments.is_empty() {
        return run(&mut cargo(["build", "--workspace"]));
    }
    run(&mut cargo(["nextest", "run", "--workspace", "--no-run"]))?;
    run(&mut cargo(["test", "--doc", "--workspace"]))
}

/// Number of concurrent tests, unless an argument sets it. Tests spend half of their time waiting for a pool, a
/// cluster, or the end of a lease.
fn threads(arguments: &[String]) -> Option<usize> {
    let is_said =
        |word: &String| word.starts_with("-j") || word.contains("test-threads") || word == "--no-capture";
    if arguments.iter().any(is_said) || env::var_os("NEXTEST_TEST_THREADS").is_some() {
        return None;
    }
    thread::available_parallelism().ok().map(|cores| cores.get() * 2)
}

/// Requirements of tests that may be missing, even for root in some containers.
struct TestStage {
    trouble: &'static str,
    tests: &'static str,
    can_be_set: fn() -> bool,
}

const STAGES: &[TestStage] = &[
    TestStage {
        trouble: "nothing may be mounted here",
        tests: "test(full_disk) or test(6_mb_disk) or test(pid_namespace) or test(worker_on_other_machine)",
        can_be_set: may_mount,
    },
    TestStage {
        trouble: "there are no loop devices here, or nothing may be mounted",
        tests: "test(aborted_file_system)",
        can_be_set: may_mount_image,
    },
    TestStage {
        trouble: "root may not become another user here, as PostgreSQL and sshd have to",
        tests: "test(postgres) or test(standby_server::) or test(maintenance::) or test(schema::) or \
                test(over_ssh) or test(unwritable_directory)",
        can_be_set: may_become_another,
    },
    TestStage {
        trouble: "an HTCondor pool wants root and the right to mount (in a container: --cap-add SYS_ADMIN)",
        tests: "binary_id(/::(pool|htcondor)$/)",
        can_be_set: may_have_pool,
    },
    TestStage {
        trouble: "a Slurm cluster wants root, and Debian's packages",
        tests: "binary_id(/::(cluster|slurm)$/)",
        can_be_set: slurm::can_be_here,
    },
    TestStage {
        trouble: "ReqMgr2 wants Python 3.9 ($PYTHON may name it) and npm",
        tests: "binary_id(/::reqmgr2$/)",
        can_be_set: reqmgr2::can_be_here,
    },
];

impl TestStage {
    fn announce(&self) -> &'static str {
        eprintln!("note: {}, so these tests are left out: {}", self.trouble, self.tests);
        self.tests
    }
}

pub(crate) fn is_root() -> bool {
    shell::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

/// Whether the pool can run here: its daemons run in a chroot with the directories of the machine mounted.
fn may_have_pool() -> bool {
    is_root() && may_mount()
}

/// Users other than root start PostgreSQL under their own account.
fn may_become_another() -> bool {
    !is_root()
        || succeeds(Command::new("setpriv").args([
            "--reuid=postgres",
            "--regid=postgres",
            "--clear-groups",
            "true",
        ]))
}

/// Whether a private mount namespace and a private PID namespace can be created.
fn may_mount() -> bool {
    let try_it = "mount -t tmpfs -o size=1m none /mnt";
    let mut unshare = Command::new("unshare");
    succeeds(unshare.args(["--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", try_it]))
}

/// Whether a file can be mounted as a disk.
fn may_mount_image() -> bool {
    may_mount() && Path::new("/dev/loop-control").exists()
}

/// `--workspace`, unless the arguments name crates: `--workspace` would override `-p`.
fn selection(arguments: &[String]) -> &'static [&'static str] {
    let names_crates = |word: &String| word.starts_with("-p") || word.starts_with("--package");
    if arguments.iter().any(names_crates) { &[] } else { &["--workspace"] }
}

fn provide_tools() -> Result<()> {
    let missing = missing(|program| shell::find_program(program).is_some() || is_postgres(program));
    if missing.is_empty() {
        return Ok(());
    }
    if !shell::can_apt_install() {
        bail!("{}", advice(&missing));
    }
    shell::apt_install(&packages(&missing)).with_context(|| advice(&missing))
}

/// Whether `program` is part of PostgreSQL, which Debian installs outside of PATH, in a directory per version.
fn is_postgres(program: &str) -> bool {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    versions.map(|version| version.path().join("bin").join(program)).any(|path| path.exists())
}

fn missing(is_there: impl Fn(&str) -> bool) -> Vec<&'static RequiredTool> {
    TOOLS.iter().filter(|tool| !is_there(tool.program)).collect()
}

fn advice(missing: &[&RequiredTool]) -> String {
    let reason = |tool: &&RequiredTool| format!("  {} ({})\n", tool.program, tool.needed_for);
    let reasons: String = missing.iter().map(reason).collect();
    format!(
        "programs that the tests need are missing:\n{reasons}install them with\n  sudo apt-get install {}\n\
         or what your system calls them",
        packages(missing).join(" ")
    )
}

/// Each package once, even if it provides several of the programs.
fn packages(missing: &[&RequiredTool]) -> Vec<&'static str> {
    let mut packages: Vec<_> = missing.iter().map(|tool| tool.package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn provide_nextest() -> Result<()> {
    if succeeds(&mut cargo(["nextest", "--version"])) {
        return Ok(());
    }
    eprintln!("cargo-nextest, the test runner, is missing: installing it (once, a few minutes)");
    let mut install = cargo(["install", "cargo-nextest", "--locked"]);
    // Not among the artifacts of the workspace: other profile and dependencies, so nothing could be reused.
    install.env_remove("CARGO_TARGET_DIR");
    run(&mut install).context("cannot install cargo-nextest; see https://nexte.st for other ways")?;
    if !succeeds(&mut cargo(["nextest", "--version"])) {
        let place = shell::output(Command::new("sh").args(["-c", "echo ${CARGO_HOME:-~/.cargo}/bin"]))?;
        bail!("cargo-nextest is installed but cargo does not find it; put {} on PATH", place.trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn package_arguments_narrow_test_run() {
        let selected = |line: &str| selection(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(selection(&[]), ["--workspace"]);
        assert_eq!(selected("kill --no-capture"), ["--workspace"]);
        assert!(selected("-p windlass-core dispatch").is_empty());
        assert!(selected("--package=windlass-core").is_empty());
    }

    #[test]
    fn explicit_test_thread_count_is_kept() {
        let threads = |line: &str| threads(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        for said in ["-j1", "-j 1", "kill --test-threads=3", "kill --no-capture"] {
            assert_eq!(threads(said), None, "{said}");
        }
    }

    /// The source files with tests, below a directory.
    fn test_sources(directory: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                test_sources(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(fs::read_to_string(&path).unwrap());
            }
        }
    }

    /// A test that is renamed would run again where its requirements are missing.
    #[test]
    fn filters_name_existing_tests_and_modules() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut sources = Vec::new();
        test_sources(&root.join("crates"), &mut sources);
        let names: Vec<&str> = sources
            .iter()
            .flat_map(|text| text.lines())
            .filter_map(|line| line.trim().strip_prefix("fn ").or_else(|| line.strip_prefix("mod ")))
            .collect();
        let configured = fs::read_to_string(root.join(".config/nextest.toml")).unwrap();
        let filters = STAGES.iter().map(|stage| stage.tests).chain([configured.as_str()]);
        let patterns = filters.flat_map(|filter| filter.split("test(").skip(1));
        let mut count = 0;
        for pattern in patterns.filter_map(|rest| rest.split(')').next()) {
            let is_named = |name: &&str| match pattern.strip_suffix("::") {
                Some(module) => name.strip_suffix(';') == Some(module),
                None => name.contains(pattern),
            };
            assert!(names.iter().any(is_named), "no test is selected by `{pattern}`");
            count += 1;
        }
        assert!(count > 8, "{count} patterns were found");
    }

    #[test]
    fn complete_machine_misses_no_program() {
        assert!(missing(|_| true).is_empty());
    }

    #[test]
    fn package_with_two_programs_is_named_once() {
        assert_eq!(packages(&missing(|program| !["flock", "setsid"].contains(&program))), ["util-linux"]);
    }

    #[test]
    fn advice_names_program_use_and_install_command() {
        let advice = advice(&missing(|program| program != "setsid"));
        assert!(advice.contains("setsid (jobs that leave their process group)"), "{advice}");
        assert!(advice.contains("apt-get install util-linux\n"), "{advice}");
    }
}
