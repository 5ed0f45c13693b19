//! The circumstances of a measurement, for the head of the report.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::shell::{output, root};

/// A load above this before the first run makes the figures unreliable.
const BUSY: f64 = 0.5;

#[derive(Debug, Default)]
pub(super) struct MachineLoad {
    cores: usize,
    processor: String,
    kernel: String,
    commit: String,
    /// The load average of the last minute.
    load: f64,
}

impl MachineLoad {
    pub(super) fn look() -> MachineLoad {
        let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
        let git =
            |words: &[&str]| output(Command::new("git").args(words).current_dir(root())).unwrap_or_default();
        let changed =
            if git(&["status", "--porcelain", "--untracked-files=no"]).is_empty() { "" } else { "+changes" };
        MachineLoad {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            processor: processor(&read("/proc/cpuinfo")),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            commit: format!("{}{changed}", git(&["rev-parse", "--short", "HEAD"]).trim()),
            load: load(&read("/proc/loadavg")),
        }
    }

    pub(super) fn describe(&self) -> String {
        let MachineLoad { cores, processor, kernel, commit, load } = self;
        let busy = if *load > BUSY {
            ": busy, so trust the ratios more than the times, and neither much"
        } else {
            ""
        };
        format!(
            "{cores} cores ({processor}), Linux {kernel}, windlass at {commit}, load before {load:.2}{busy}"
        )
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "cores": self.cores,
            "processor": self.processor,
            "kernel": self.kernel,
            "commit": self.commit,
            "load_before": self.load,
        })
    }
}

fn processor(cpuinfo: &str) -> String {
    let name = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or_else(|| "unknown".to_owned(), |(_, name)| name.to_owned())
}

fn load(loadavg: &str) -> f64 {
    loadavg.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_model_and_load_are_parsed() {
        assert_eq!(processor("vendor_id\t: X\nmodel name\t: Fast 9000\nflags\t: a"), "Fast 9000");
        assert_eq!(processor(""), "unknown");
        assert!((load("0.25 0.10 0.05 1/99 123\n") - 0.25).abs() < f64::EPSILON);
    }

    #[test]
    fn busy_machine_is_reported() {
        assert!(!MachineLoad { load: 0.1, ..MachineLoad::default() }.describe().contains("busy"));
        assert!(MachineLoad { load: 2.0, ..MachineLoad::default() }.describe().contains("busy"));
    }
}
