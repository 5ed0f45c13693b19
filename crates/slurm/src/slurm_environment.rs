//! The environment of a worker in an allocation: where it is, its resources, its time.
//!
//! Nothing here calls Slurm: variables, a configuration file and the output of `squeue` come in as text.

use std::time::Duration;
use windlass_types::slurm::SlurmJobNode;
use windlass_types::{Bytes, Capacity, Timestamp};

/// Set in an allocation, and read as options by any `srun` or `sbatch` in it: jobs do not get them.
pub const OPTION_LIKE_VARIABLES: &[&str] = &[
    "SLURM_CPUS_PER_TASK",
    "SLURM_CPU_BIND",
    "SLURM_CPU_BIND_LIST",
    "SLURM_CPU_BIND_TYPE",
    "SLURM_CPU_BIND_VERBOSE",
    "SLURM_DISTRIBUTION",
    "SLURM_EXPORT_ENV",
    "SLURM_GPUS",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_TASK",
    "SLURM_HINT",
    "SLURM_MEM_BIND",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_GPU",
    "SLURM_MEM_PER_NODE",
    "SLURM_NNODES",
    "SLURM_NPROCS",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_CORE",
    "SLURM_NTASKS_PER_GPU",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_NTASKS_PER_SOCKET",
    "SLURM_OPEN_MODE",
    "SLURM_STEP_GPUS",
    "SLURM_TIMELIMIT",
    "SLURM_TRES_PER_TASK",
    "SLURM_UMASK",
];

/// More names than a cluster has nodes: such a list is a mistake.
const MAX_NODES: usize = 100_000;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlurmEnvironmentError {
    #[error("{0} is not set: this command runs only inside an allocation, started by its batch script")]
    MissingVariable(&'static str),
    #[error("{name} is {value:?}, which is not a number")]
    NotANumber { name: &'static str, value: String },
    #[error("{0:?} is not a list of nodes in Slurm's format")]
    InvalidHostList(String),
}

/// The environment of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlurmEnvironment {
    pub place: SlurmJobNode,
    /// Per node.
    pub cpus: u32,
    /// Per node; `None`: unknown.
    pub memory: Option<Bytes>,
    /// The GPUs of this node.
    pub devices: Vec<String>,
    /// The nodes on which it runs jobs, this one first.
    pub nodes: Vec<String>,
    /// Index and number of the workers of the allocation.
    pub worker_index: u32,
    pub worker_count: u32,
    /// When Slurm will end it, as known at its start. Older versions do not tell.
    pub ends_at: Option<Timestamp>,
}

impl SlurmEnvironment {
    /// Reads the environment.
    pub fn from_environment(get: impl Fn(&str) -> Option<String>) -> Result<Self, SlurmEnvironmentError> {
        let message = |name: &'static str| get(name).filter(|value| !value.is_empty());
        let job_id = parse_number(message("SLURM_JOB_ID"), "SLURM_JOB_ID")?
            .ok_or(SlurmEnvironmentError::MissingVariable("SLURM_JOB_ID"))?;
        let cpus = parse_number(message("SLURM_CPUS_ON_NODE"), "SLURM_CPUS_ON_NODE")?;
        let cpus: u32 = cpus.ok_or(SlurmEnvironmentError::MissingVariable("SLURM_CPUS_ON_NODE"))?;
        let restarts = parse_number(message("SLURM_RESTART_COUNT"), "SLURM_RESTART_COUNT")?.unwrap_or(0);
        // With several steps, each is on a node of its own.
        let is_one_of_many = message("SLURM_STEP_ID").is_some();
        let listed =
            message("SLURM_JOB_NODELIST").map(|list| parse_hostlist(&list)).transpose()?.unwrap_or_default();
        let node = message("SLURMD_NODENAME").or_else(|| listed.first().cloned()).unwrap_or_default();
        let others = listed.into_iter().filter(|name| *name != node && !is_one_of_many);
        let nodes = std::iter::once(node.clone()).chain(others).collect();
        let tasks =
            parse_number(message("SLURM_STEP_NUM_TASKS"), "SLURM_STEP_NUM_TASKS")?.filter(|_| is_one_of_many);
        let number_of = parse_number(message("SLURM_PROCID"), "SLURM_PROCID")?.unwrap_or(0);
        Ok(Self {
            place: SlurmJobNode { job_id, restarts, node },
            cpus,
            memory: parse_memory(&message, cpus)?,
            devices: parse_devices(&message),
            nodes,
            worker_index: number_of,
            worker_count: tasks.unwrap_or(1),
            ends_at: parse_number(message("SLURM_JOB_END_TIME"), "SLURM_JOB_END_TIME")?
                .map(|seconds: i64| Timestamp(seconds.saturating_mul(1_000_000))),
        })
    }

    /// The capacity of the worker; `otherwise` is the memory of this machine, used where Slurm limits none.
    pub fn capacity(&self, otherwise: Bytes, max_jobs: Option<u32>) -> Capacity {
        Capacity {
            cpus: self.cpus,
            memory: self.memory.unwrap_or(otherwise),
            gpus: self.devices.len() as u32,
            nodes: self.nodes.len().max(1) as u32,
            max_jobs,
        }
    }

    /// Delay before the first contact, to spread workers that start at the same time: constant for each worker,
    /// different between them.
    pub fn start_delay(&self) -> Duration {
        let most = match self.worker_count {
            0..=10 => return Duration::ZERO,
            11..=100 => 5_000,
            _ => 20_000,
        };
        // Neighbors are far apart: multiples of the golden section.
        let spread =
            u64::from(self.worker_index).wrapping_add(self.place.job_id).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Duration::from_millis((spread >> 32) % most)
    }
}

fn parse_number<T: std::str::FromStr>(
    value: Option<String>,
    name: &'static str,
) -> Result<Option<T>, SlurmEnvironmentError> {
    let Some(value) = value else { return Ok(None) };
    value.trim().parse().map(Some).map_err(|_| SlurmEnvironmentError::NotANumber { name, value })
}

/// In megabytes: of the node, else of each CPU. 0 means all of it.
fn parse_memory(
    message: &impl Fn(&'static str) -> Option<String>,
    cpus: u32,
) -> Result<Option<Bytes>, SlurmEnvironmentError> {
    let of_node: Option<u64> = parse_number(message("SLURM_MEM_PER_NODE"), "SLURM_MEM_PER_NODE")?;
    let of_cpu: Option<u64> = parse_number(message("SLURM_MEM_PER_CPU"), "SLURM_MEM_PER_CPU")?;
    let megabytes = of_node.or_else(|| of_cpu.map(|each| each.saturating_mul(cpus.into())));
    Ok(megabytes.filter(|megabytes| *megabytes > 0).map(|megabytes| Bytes(megabytes.saturating_mul(1 << 20))))
}

fn parse_devices(message: &impl Fn(&'static str) -> Option<String>) -> Vec<String> {
    let names = ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"];
    let Some(list) = names.into_iter().find_map(message) else { return Vec::new() };
    let parts = list.split(',').map(str::trim).filter(|part| !part.is_empty() && *part != "NoDevFiles");
    parts.flat_map(expand_range).collect()
}

/// `2-4` is `2`, `3`, `4`; all else is unchanged.
fn expand_range(part: &str) -> Vec<String> {
    let bounds = part.split_once('-').and_then(|(low, high)| {
        let (low, high): (u32, u32) = (low.parse().ok()?, high.parse().ok()?);
        (low <= high && high - low < 1024).then_some(low..=high)
    });
    bounds.map_or_else(|| vec![part.to_owned()], |range| range.map(|index| index.to_string()).collect())
}

/// The nodes of a list in Slurm's format: `n[1-3,5],g1`, `r[1-2]n[01-16]`.
pub fn parse_hostlist(text: &str) -> Result<Vec<String>, SlurmEnvironmentError> {
    let wrong = || SlurmEnvironmentError::InvalidHostList(text.to_owned());
    let mut nodes = Vec::new();
    for part in split_outside_brackets(text).ok_or_else(wrong)? {
        let mut names = vec![String::new()];
        let mut rest = part;
        while let Some((before, after)) = rest.split_once('[') {
            let (inside, after) = after.split_once(']').ok_or_else(wrong)?;
            let numbers = expand_numbers(inside).ok_or_else(wrong)?;
            if names.len().saturating_mul(numbers.len()) > MAX_NODES {
                return Err(wrong());
            }
            let with = |name: &String| -> Vec<String> {
                numbers.iter().map(|number| format!("{name}{before}{number}")).collect()
            };
            names = names.iter().flat_map(with).collect();
            rest = after;
        }
        if part.is_empty() || rest.contains(']') {
            return Err(wrong());
        }
        nodes.extend(names.into_iter().map(|name| name + rest));
    }
    if nodes.len() > MAX_NODES { Err(wrong()) } else { Ok(nodes) }
}

fn split_outside_brackets(text: &str) -> Option<Vec<&str>> {
    let (mut parts, mut begin, mut depth) = (Vec::new(), 0, 0_u32);
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                parts.push(text.get(begin..at)?);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text.get(begin..)?);
    (depth == 0).then_some(parts)
}

/// `1-3,07`: with the number of digits that they are written with.
fn expand_numbers(list: &str) -> Option<Vec<String>> {
    let mut numbers = Vec::new();
    for part in list.split(',') {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (u64, u64) = (low.parse().ok()?, high.parse().ok()?);
        if from > to || to - from >= MAX_NODES as u64 {
            return None;
        }
        numbers.extend((from..=to).map(|number| format!("{number:0width$}", width = low.len())));
    }
    Some(numbers)
}

/// Time limit of an allocation, as printed by `squeue -o %L`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeLeft {
    Time(Duration),
    Unlimited,
    /// Unknown.
    Unknown,
}

impl TimeLeft {
    /// `1-02:03:04`, `2:03:04`, `3:04`, `UNLIMITED`, `INVALID` …
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        if text == "UNLIMITED" {
            return Self::Unlimited;
        }
        let (days, clock) = text.split_once('-').unwrap_or(("0", text));
        let parts: Option<Vec<u64>> = clock.split(':').map(|part| part.parse().ok()).collect();
        let seconds = match (parts.as_deref(), days.parse::<u64>()) {
            (Some([hours, minutes, seconds]), Ok(days)) => {
                Some((days, (hours * 60 + minutes).saturating_mul(60) + seconds))
            }
            (Some([minutes, seconds]), Ok(0)) => Some((0, minutes.saturating_mul(60) + seconds)),
            _ => None,
        };
        seconds.map_or(Self::Unknown, |(days, seconds)| {
            Self::Time(Duration::from_secs(days.saturating_mul(86_400).saturating_add(seconds)))
        })
    }
}

/// The remaining time of a worker, as known at its start. In an allocation of a server Slurm is not called: the
/// server reports changes of the end, and a thousand workers that start at once would make a thousand calls.
pub fn decide_time_left(
    around: &SlurmEnvironment,
    asked_for: Option<Duration>,
    is_looked_after: bool,
    now: Timestamp,
    ask: impl FnOnce() -> Option<Duration>,
) -> Option<Duration> {
    // A time in the past comes from another clock.
    let message = around.ends_at.filter(|at| *at > now).map(|at| at.since(now));
    message.or_else(|| asked_for.filter(|_| is_looked_after)).or_else(ask).or(asked_for)
}

/// Time between SIGTERM and SIGKILL in Slurm's configuration.
pub fn parse_kill_wait(configuration: &str) -> Duration {
    let mut message = configuration.lines().filter_map(|line| {
        let (name, value) = line.split('#').next()?.split_once('=')?;
        if name.trim().eq_ignore_ascii_case("KillWait") { value.trim().parse().ok() } else { None }
    });
    Duration::from_secs(message.next_back().unwrap_or(30))
}

/// The part of it for jobs, so that the server still gets their results.
pub fn job_grace(kill_wait: Duration) -> Duration {
    kill_wait.saturating_sub((kill_wait / 2).min(Duration::from_secs(5)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn read(variables: &[(&str, &str)]) -> Result<SlurmEnvironment, SlurmEnvironmentError> {
        let variables: HashMap<&str, &str> = variables.iter().copied().collect();
        SlurmEnvironment::from_environment(|name| variables.get(name).map(|value| (*value).to_owned()))
    }

    const BATCH: [(&str, &str); 6] = [
        ("SLURM_JOB_ID", "8"),
        ("SLURM_CPUS_ON_NODE", "4"),
        ("SLURM_MEM_PER_NODE", "1000"),
        ("SLURM_JOB_NODELIST", "n[1-2]"),
        ("SLURMD_NODENAME", "n1"),
        ("SLURM_PROCID", "0"),
    ];

    #[test]
    fn batch_script_sees_all_nodes() {
        let found = read(&BATCH).unwrap();
        assert_eq!(found.place, SlurmJobNode { job_id: 8, restarts: 0, node: "n1".into() });
        assert_eq!(found.nodes, ["n1", "n2"]);
        let capacity = found.capacity(Bytes(1), Some(3));
        let memory = Bytes(1000 << 20);
        assert_eq!(capacity, Capacity { cpus: 4, memory, gpus: 0, nodes: 2, max_jobs: Some(3) });
    }

    #[test]
    fn step_sees_its_own_node() {
        let step = [("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "2"), ("SLURMD_NODENAME", "n2")];
        let found = read(&[&BATCH[..], &step].concat()).unwrap();
        assert_eq!(
            (found.nodes, found.worker_count, found.place.node),
            (vec!["n2".to_owned()], 2, "n2".to_owned())
        );
    }

    #[test]
    fn memory_is_read_from_the_environment() {
        let basics = [("SLURM_JOB_ID", "8"), ("SLURM_CPUS_ON_NODE", "4")];
        for (message, expected) in [
            (&[][..], None),
            (&[("SLURM_MEM_PER_NODE", "0")], None),
            (&[("SLURM_MEM_PER_CPU", "500")], Some(2000 << 20)),
            (&[("SLURM_MEM_PER_NODE", "300"), ("SLURM_MEM_PER_CPU", "500")], Some(300 << 20)),
        ] {
            assert_eq!(
                read(&[&basics, message].concat()).unwrap().memory,
                expected.map(Bytes),
                "{message:?}"
            );
        }
    }

    #[test]
    fn gpus_are_read_from_the_environment() {
        let basics = [("SLURM_JOB_ID", "8"), ("SLURM_CPUS_ON_NODE", "4")];
        for (message, expected) in [
            (&[][..], &[][..]),
            (&[("CUDA_VISIBLE_DEVICES", "0,1"), ("SLURM_JOB_GPUS", "2,3")], &["0", "1"]),
            (&[("SLURM_JOB_GPUS", "0-2,5")], &["0", "1", "2", "5"]),
            (&[("CUDA_VISIBLE_DEVICES", "GPU-aa-bb")], &["GPU-aa-bb"]),
            (&[("CUDA_VISIBLE_DEVICES", "NoDevFiles")], &[]),
        ] {
            assert_eq!(read(&[&basics, message].concat()).unwrap().devices, expected, "{message:?}");
        }
    }

    #[test]
    fn slurm_is_asked_for_the_end_only_if_unknown() {
        let now = Timestamp(1_000_000_000);
        let seconds = |seconds: u64| Some(Duration::from_secs(seconds));
        for (end, asked_for, is_looked_after, answer, expected, is_asked) in [
            (Some("1600"), seconds(900), true, None, seconds(600), false),
            (Some("1600"), None, false, None, seconds(600), false),
            (Some("900"), seconds(900), true, None, seconds(900), false),
            (None, seconds(900), true, seconds(5), seconds(900), false),
            (None, seconds(900), false, seconds(5), seconds(5), true),
            (None, seconds(900), false, None, seconds(900), true),
            (None, None, true, seconds(5), seconds(5), true),
        ] {
            let mut variables = BATCH.to_vec();
            variables.extend(end.map(|end| ("SLURM_JOB_END_TIME", end)));
            let mut was_asked = false;
            let found = decide_time_left(&read(&variables).unwrap(), asked_for, is_looked_after, now, || {
                was_asked = true;
                answer
            });
            assert_eq!((found, was_asked), (expected, is_asked), "{end:?} {asked_for:?} {is_looked_after}");
        }
    }

    #[test]
    fn missing_allocation_is_an_error() {
        assert_eq!(read(&[]), Err(SlurmEnvironmentError::MissingVariable("SLURM_JOB_ID")));
        let odd = read(&[("SLURM_JOB_ID", "8"), ("SLURM_CPUS_ON_NODE", "many")]).unwrap_err();
        assert_eq!(odd.to_string(), "SLURM_CPUS_ON_NODE is \"many\", which is not a number");
    }

    #[test]
    fn node_lists_are_expanded() {
        for (list, names) in [
            ("n1", &["n1"][..]),
            ("n[1-3,5],g1", &["n1", "n2", "n3", "n5", "g1"]),
            ("n[08-10]-ib", &["n08-ib", "n09-ib", "n10-ib"]),
            ("r[1-2]n[1,3]", &["r1n1", "r1n3", "r2n1", "r2n3"]),
        ] {
            assert_eq!(parse_hostlist(list).unwrap(), names, "{list}");
        }
        for wrong in ["", "n[1-3", "n1]", "n[3-1]", "n[a]", "n1,,n2", "n[1-999999999]", "n[[1]]"] {
            assert_eq!(parse_hostlist(wrong), Err(SlurmEnvironmentError::InvalidHostList(wrong.to_owned())));
        }
    }

    #[test]
    fn time_left_is_parsed() {
        for (text, expected) in [
            ("1:00\n", Some(60)),
            ("0:07", Some(7)),
            ("2:03:04", Some(7384)),
            ("1-00:00:01", Some(86_401)),
            ("INVALID", None),
            ("NOT_SET", None),
            ("", None),
            ("-0:05", None),
            ("1-5", None),
        ] {
            let expected = expected.map_or(TimeLeft::Unknown, |s| TimeLeft::Time(Duration::from_secs(s)));
            assert_eq!(TimeLeft::parse(text), expected, "{text}");
        }
        assert_eq!(TimeLeft::parse("UNLIMITED"), TimeLeft::Unlimited);
    }

    #[test]
    fn kill_wait_is_parsed() {
        assert_eq!(parse_kill_wait("# KillWait=9\nKillWait=2 # quick\nFoo=1"), Duration::from_secs(2));
        assert_eq!(parse_kill_wait("killwait = 60"), Duration::from_mins(1));
        assert_eq!(parse_kill_wait(""), Duration::from_secs(30));
        for (wait, grace_then) in [(2, 1), (30, 25), (0, 0)] {
            assert_eq!(job_grace(Duration::from_secs(wait)), Duration::from_secs(grace_then));
        }
    }

    #[test]
    fn start_of_many_workers_is_spread() {
        let one = read(&BATCH).unwrap();
        assert_eq!(one.start_delay(), Duration::ZERO);
        let of = |number| {
            SlurmEnvironment { worker_index: number, worker_count: 500, ..one.clone() }.start_delay()
        };
        assert!((0..500).all(|number| of(number) < Duration::from_secs(20)));
        assert!(of(1) != of(2) && of(1) == of(1));
    }
}
