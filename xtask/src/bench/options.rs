//! The arguments of `cargo xtask bench`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use super::workloads::{CREATION, RUNS};

pub(super) const HELP: &str = "\
cargo xtask bench [A] [B] [C] [D] [OPTIONS]: windlass against the floor and its peers
cargo xtask bench workers [OPTIONS]: one server, many workers (see its own --help)
cargo xtask bench retries [OPTIONS]: what a retry costs, and how soon a storm is over (see its own --help)
cargo xtask bench plan [OPTIONS]: planning a large dataset with each splitter (see its own --help)
cargo xtask bench adaptive [OPTIONS]: how well rounds learn from hints that are wrong (see its own --help)
cargo xtask bench requests [OPTIONS]: passes over many requests, and the API meanwhile (see its own --help)
cargo xtask bench slurm [OPTIONS]: jobs in allocations of Slurm, beside torc (see its own --help)
cargo xtask bench dag [PART] [OPTIONS]: runs on HTCondor: rendering, following them (see its own --help)

  A  10,000 independent jobs, 2 at once           C  a chain of 500 jobs
  B  1 job, then 10,000, then 1                   D  create 10,000, 100,000 and 1,000,000 jobs from a
  (all jobs are `sh -c true`)                        spec file, and ask for their status

Competitors run one after another within each round, every round in another order, always in fresh
directories; ratios are taken within a round, so that a machine that changes its pace does not change
them. Each competitor first proves with a dozen small jobs that it runs them all, once, in order. Peers
that are not on the machine, or that fail, are rows that say so.

  --runs N               rounds (default 3)
  --jobs N               jobs of A and B (default 10000)
  --hops N               jobs of C (default 500)
  --sizes N,N            jobs of D (default 10000,100000,1000000)
  --slots N              jobs at once (default 2)
  --quick                a look in a minute or two: 1 round, 1000 jobs, 100 hops, 10000 to create
  --only NAME,NAME       these competitors only: floor, xargs, windlass, baseline, make, parallel, parsl,
                         hyperqueue, snakemake, torc (ratios need floor and xargs)
  --install-peers[=all]  first install what can be had: make and parallel (apt, as root), parsl, snakemake
                         and hyperqueue (pip, into target/bench-peers); with =all also torc (cargo, a
                         quarter of an hour)
  --baseline FILE        another windlass binary, such as one of an earlier version, as a competitor of its own
  --json FILE            also write everything as JSON; `-` is stdout, the table then goes to stderr
  --keep                 leave the directories of the runs under target/bench, as an interrupted one does

Peak memory is that of the competitor's largest process, jobs included. Disk is what it left in its
directory, as allocated.
";

#[derive(Debug, PartialEq)]
pub(super) struct Options {
    pub(super) workloads: Vec<char>,
    pub(super) runs: usize,
    pub(super) jobs: usize,
    pub(super) hops: usize,
    pub(super) sizes: Vec<usize>,
    pub(super) slots: usize,
    /// Empty means all.
    pub(super) only: Vec<String>,
    pub(super) install: Install,
    pub(super) baseline: Option<PathBuf>,
    pub(super) json: Option<PathBuf>,
    pub(super) keep: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(super) enum Install {
    Nothing,
    QuickPeers,
    AllPeers,
}

impl Options {
    /// `known` are the names that `--only` accepts.
    pub(super) fn parse(words: &[String], known: &[&str]) -> Result<Options> {
        let mut options = if words.iter().any(|word| word == "--quick") { quick() } else { full() };
        let mut words = words.iter().flat_map(|word| split_value(word));
        while let Some(word) = words.next() {
            let mut value = |name: &str| words.next().with_context(|| format!("{name} needs a value"));
            match word {
                "--quick" => {}
                "--keep" => options.keep = true,
                "--runs" => options.runs = number(value(word)?)?,
                "--jobs" => options.jobs = number(value(word)?)?,
                "--hops" => options.hops = number(value(word)?)?,
                "--slots" => options.slots = number(value(word)?)?,
                "--sizes" => options.sizes = value(word)?.split(',').map(number).collect::<Result<_>>()?,
                "--baseline" => options.baseline = Some(value(word)?.into()),
                "--json" => options.json = Some(value(word)?.into()),
                "--only" => options.only = names(value(word)?, known)?,
                "--install-peers" => options.install = Install::QuickPeers,
                "--install-peers=all" => options.install = Install::AllPeers,
                other => options.workloads.push(letter(other)?),
            }
        }
        if options.workloads.is_empty() {
            options.workloads = letters();
        }
        options.workloads.sort_unstable();
        options.workloads.dedup();
        Ok(options)
    }

    pub(super) fn wants(&self, competitor: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == competitor)
    }
}

fn full() -> Options {
    Options {
        workloads: Vec::new(),
        runs: 3,
        jobs: 10_000,
        hops: 500,
        sizes: vec![10_000, 100_000, 1_000_000],
        slots: 2,
        only: Vec::new(),
        install: Install::Nothing,
        baseline: None,
        json: None,
        keep: false,
    }
}

fn quick() -> Options {
    Options { runs: 1, jobs: 1000, hops: 100, sizes: vec![10_000], ..full() }
}

/// `--runs=3` is `--runs 3`. The value of `--install-peers` is optional and stays where it is.
pub(super) fn split_value(word: &str) -> Vec<&str> {
    match word.split_once('=') {
        Some((name, value)) if name.starts_with("--") && name != "--install-peers" => vec![name, value],
        _ => vec![word],
    }
}

/// Whether a build of this profile is optimized.
pub(super) fn is_release(profile: &str) -> Result<bool> {
    match profile {
        "release" => Ok(true),
        "dev" => Ok(false),
        other => bail!("there is no profile `{other}`; there are release and dev"),
    }
}

pub(super) fn number(text: &str) -> Result<usize> {
    let digits = text.replace('_', "");
    match digits.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => bail!("`{text}` is not a number from 1"),
    }
}

fn names(text: &str, known: &[&str]) -> Result<Vec<String>> {
    let names: Vec<String> = text.split(',').map(str::to_owned).collect();
    match names.iter().find(|name| !known.contains(&name.as_str())) {
        Some(unknown) => bail!("there is no competitor `{unknown}`; there are {}", known.join(", ")),
        None => Ok(names),
    }
}

fn letters() -> Vec<char> {
    RUNS.iter().map(|workload| workload.letter).chain([CREATION]).collect()
}

fn letter(word: &str) -> Result<char> {
    let upper = word.to_uppercase();
    let found = letters().into_iter().find(|letter| upper == letter.to_string());
    found.with_context(|| {
        format!("`{word}` is neither a workload nor an option; see `cargo xtask bench --help`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&words, &["floor", "xargs"])
    }

    #[test]
    fn default_options_select_all_full_workloads() {
        let options = parse("").unwrap();
        assert_eq!(options, Options { workloads: vec!['A', 'B', 'C', 'D'], ..full() });
        assert!(options.wants("floor") && options.wants("torc"));
    }

    #[test]
    fn explicit_options_override_quick_in_any_order() {
        let options =
            parse("c a a --runs 7 --quick --jobs=2_000 --baseline old --json - --install-peers=all").unwrap();
        let expected = Options {
            workloads: vec!['A', 'C'],
            runs: 7,
            jobs: 2000,
            baseline: Some("old".into()),
            json: Some("-".into()),
            install: Install::AllPeers,
            ..quick()
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn only_option_selects_competitors() {
        let options = parse("--only floor,xargs --sizes 10,20").unwrap();
        assert!(options.wants("xargs") && !options.wants("windlass"));
        assert_eq!(options.sizes, [10, 20]);
    }

    #[test]
    fn invalid_options_are_named() {
        for (line, complaint) in [
            ("E", "`E` is neither"),
            ("--runs", "--runs needs a value"),
            ("--runs 0", "`0` is not a number"),
            ("--jobs many", "`many` is not a number"),
            ("--only floor,wargs", "no competitor `wargs`"),
            ("--fast", "`--fast` is neither"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(complaint), "{line}: {error}");
        }
    }
}
