//! The resources of this machine: CPUs, memory and GPUs that this process may use.

use crate::cgroup::CgroupPaths;
use crate::procfs;
use std::fs;
use std::path::Path;
use std::time::Duration;
use windlass_types::Bytes;

/// The resources found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineInfo {
    pub hostname: String,
    pub cpus: u32,
    pub memory: Bytes,
    /// Ids as the vendors' `*_VISIBLE_DEVICES` take them.
    pub gpus: Vec<String>,
}

impl MachineInfo {
    pub fn detect() -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        Self {
            hostname: hostname(),
            cpus: detect_cpus(),
            memory: detect_memory(
                &CgroupPaths::of_this_process(),
                &fs::read_to_string("/proc/meminfo").unwrap_or_default(),
            ),
            gpus: detect_gpus(&variable, Path::new("/")),
        }
    }
}

/// The usage of the whole machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineUsage {
    /// Time that its CPUs were busy since boot.
    pub busy_time: Duration,
    pub memory: Bytes,
}

impl MachineUsage {
    pub fn measure() -> Option<Self> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
        let in_use = parse_meminfo_field(&meminfo, "MemTotal:")?
            .saturating_sub(parse_meminfo_field(&meminfo, "MemAvailable:")?);
        Some(Self { busy_time: parse_busy_time(&stat)?, memory: Bytes(in_use) })
    }
}

/// All CPU time except idle and iowait.
fn parse_busy_time(stat: &str) -> Option<Duration> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_ascii_whitespace().filter_map(|field| field.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is included in user and nice.
    let busy: u64 =
        ticks.iter().take(8).enumerate().filter(|(i, _)| !matches!(i, 3 | 4)).map(|(_, t)| t).sum();
    Some(Duration::from_millis(busy * 1000 / procfs::ticks_per_second()))
}

/// In bytes.
fn parse_meminfo_field(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The usable CPUs: the standard library respects the affinity mask and cgroup quotas.
fn detect_cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}

/// The machine's memory, or less if a cgroup above this process has a limit.
fn detect_memory(places: &CgroupPaths, meminfo: &str) -> Bytes {
    let total = parse_meminfo_field(meminfo, "MemTotal:").unwrap_or(u64::MAX);
    let limit = read_v1_memory_limit(places).into_iter().chain(read_v2_memory_limits(places)).min();
    Bytes(total.min(limit.unwrap_or(u64::MAX)))
}

/// Already the smallest of all parent cgroups.
fn read_v1_memory_limit(places: &CgroupPaths) -> Option<u64> {
    let text = fs::read_to_string(places.v1_group("memory")?.join("memory.stat")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("hierarchical_memory_limit ")?.trim().parse().ok())
}

fn read_v2_memory_limits(places: &CgroupPaths) -> Vec<u64> {
    let Some((mount, own)) = places.v2_group() else { return Vec::new() };
    own.ancestors()
        .take_while(|group| group.starts_with(&mount))
        .filter_map(|group| fs::read_to_string(group.join("memory.max")).ok()?.trim().parse().ok())
        .collect()
}

/// The GPUs from the environment (set by batch systems), else those that the drivers show. An empty list in the
/// environment means none, not all.
fn detect_gpus(variable: &dyn Fn(&str) -> Option<String>, root: &Path) -> Vec<String> {
    const NAMES: [&str; 6] = [
        "CUDA_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
        "SLURM_STEP_GPUS",
        "SLURM_JOB_GPUS",
    ];
    if let Some(text) = NAMES.iter().find_map(|name| variable(name)) {
        return parse_devices(&text);
    }
    let count = [count_nvidia_driver_gpus(root), count_nvidia_devices(root), count_amd_devices(root)]
        .into_iter()
        .find(|count| *count > 0)
        .unwrap_or(0);
    (0..count).map(|index| index.to_string()).collect()
}

/// Parses `0,1`, `GPU-8f3a…,GPU-…`, or Slurm's `0-3`; everything from the first negative number on is hidden,
/// as in CUDA.
fn parse_devices(text: &str) -> Vec<String> {
    let mut devices = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        if part.starts_with('-') || part == "NoDevFiles" {
            break;
        }
        match part.split_once('-').map(|(from, to)| (from.parse::<u32>(), to.parse::<u32>())) {
            Some((Ok(from), Ok(to))) => devices.extend((from..=to).map(|index| index.to_string())),
            _ => devices.push(part.to_owned()),
        }
    }
    devices
}

fn count_nvidia_driver_gpus(root: &Path) -> usize {
    list_names(&root.join("proc/driver/nvidia/gpus")).len()
}

fn count_nvidia_devices(root: &Path) -> usize {
    let is_card = |name: &String| {
        name.strip_prefix("nvidia")
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    };
    list_names(&root.join("dev")).iter().filter(|name| is_card(name)).count()
}

/// Nodes of the compute driver's topology; CPUs are listed there too, with id 0.
fn count_amd_devices(root: &Path) -> usize {
    let nodes = root.join("sys/class/kfd/kfd/topology/nodes");
    let is_card = |name: &String| {
        fs::read_to_string(nodes.join(name).join("gpu_id")).is_ok_and(|id| !matches!(id.trim(), "" | "0"))
    };
    list_names(&nodes).iter().filter(|name| is_card(name)).count()
}

fn list_names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<'a>(name: &'a str, value: &'a str) -> impl Fn(&str) -> Option<String> + 'a {
        move |asked| (asked == name).then(|| value.to_owned())
    }

    #[test]
    fn machine_resources_are_detected() {
        let machine = MachineInfo::detect();
        assert!(machine.cpus >= 1);
        assert!(machine.memory > Bytes(1 << 20) && machine.memory < Bytes(1 << 50));
        assert!(!machine.hostname.is_empty());
    }

    #[test]
    fn busy_time_excludes_idle_and_iowait() {
        let tick = 1000 / procfs::ticks_per_second();
        let stat = "cpu  10 20 30 1000 500 1 2 3 10 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(parse_busy_time(stat), Some(Duration::from_millis(66 * tick)));
        assert_eq!(parse_busy_time("intr 1\n"), None);
        let now = MachineUsage::measure().unwrap();
        assert!(now.busy_time > Duration::ZERO && now.memory > Bytes(0));
    }

    #[test]
    fn the_environment_names_the_gpus_or_none() {
        let nowhere = Path::new("/no/such/root");
        for (value, devices) in [
            ("0,1", &["0", "1"][..]),
            (" 3 , GPU-8f3a ", &["3", "GPU-8f3a"]),
            ("0-2,5", &["0", "1", "2", "5"]),
            ("", &[]),
            ("-1", &[]),
            ("2,-1,3", &["2"]),
            ("NoDevFiles", &[]),
        ] {
            assert_eq!(detect_gpus(&with("CUDA_VISIBLE_DEVICES", value), nowhere), devices, "{value:?}");
        }
        assert_eq!(detect_gpus(&with("SLURM_JOB_GPUS", "1"), nowhere), ["1"]);
    }

    #[test]
    fn gpus_are_detected_from_the_drivers() {
        let root = tempfile::tempdir().unwrap();
        let no_variables = |_: &str| None;
        assert!(detect_gpus(&no_variables, root.path()).is_empty());
        let node = |number: u32, id: &str| {
            let node = root.path().join(format!("sys/class/kfd/kfd/topology/nodes/{number}"));
            fs::create_dir_all(&node).unwrap();
            fs::write(node.join("gpu_id"), id).unwrap();
        };
        node(0, "0\n");
        node(1, "51000\n");
        assert_eq!(detect_gpus(&no_variables, root.path()), ["0"]);
        fs::create_dir_all(root.path().join("dev")).unwrap();
        for name in ["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"] {
            fs::write(root.path().join("dev").join(name), "").unwrap();
        }
        assert_eq!(detect_gpus(&no_variables, root.path()), ["0", "1"]);
        for name in ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"] {
            fs::create_dir_all(root.path().join("proc/driver/nvidia/gpus").join(name)).unwrap();
        }
        assert_eq!(detect_gpus(&no_variables, root.path()), ["0", "1", "2"]);
    }

    #[test]
    fn a_cgroup_limits_the_usable_memory() {
        let root = tempfile::tempdir().unwrap();
        let meminfo = "MemFree: 1 kB\nMemTotal:       1000 kB\n";
        let places = |own: &str| CgroupPaths { root: root.path().to_owned(), own_cgroup: own.to_owned() };
        assert_eq!(detect_memory(&places(""), meminfo), Bytes(1_024_000));
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        fs::write(root.path().join("cgroup.controllers"), "").unwrap();
        fs::write(root.path().join("a/memory.max"), "5000\n").unwrap();
        fs::write(root.path().join("a/b/memory.max"), "max\n").unwrap();
        assert_eq!(detect_memory(&places("0::/a/b\n"), meminfo), Bytes(5000));
        fs::create_dir_all(root.path().join("memory")).unwrap();
        fs::write(root.path().join("memory/memory.stat"), "cache 1\nhierarchical_memory_limit 4000\n")
            .unwrap();
        assert_eq!(detect_memory(&places("4:memory:/\n"), meminfo), Bytes(4000));
    }
}
