//! Resource profiles of the simulated programs. The numbers are data: `profiles.json`.
//!
//! The law is Amdahl's: a fraction `f` of the work of an event runs on one thread, the rest on all. With `n`
//! threads the wall time is the work times `f + (1 − f) / n`, and the CPU time is the work, so the CPU efficiency
//! is `1 / (n·f + 1 − f)`.

use serde::Deserialize;
use std::sync::LazyLock;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramProfile {
    pub name: String,
    /// The fraction of the work of an event that one thread does alone.
    pub serial_fraction: f64,
    pub base_mb: u64,
    pub mb_per_thread: u64,
    /// CPU time of one event.
    pub sec_per_event: f64,
    /// Bytes of output per event.
    pub kb_per_event: u64,
}

static PROFILES: LazyLock<Vec<ProgramProfile>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("profiles.json")).expect("a test has read the built-in profiles")
});

const DEFAULT_PROFILE: usize = 1;

/// The profile whose name is a prefix of this one, ignoring case; DIGI if there is none.
pub fn find_profile(name: &str) -> &'static ProgramProfile {
    let name = name.to_ascii_uppercase();
    PROFILES.iter().find(|profile| name.starts_with(&profile.name)).unwrap_or(&PROFILES[DEFAULT_PROFILE])
}

/// The total usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceDemand {
    /// CPU time of the serial part.
    pub serial: Duration,
    /// CPU time of each thread in the parallel part.
    pub parallel: Duration,
    pub memory: u64,
    /// Bytes of output per event.
    pub event_size: usize,
}

/// A speed of 1000 is a thousand times faster, with less memory and smaller files.
pub fn compute_demand(profile: &ProgramProfile, events: u64, threads: u32, speed: f64) -> ResourceDemand {
    let speed = if speed.is_finite() && speed > 0.0 { speed } else { 1.0 };
    let work = events as f64 * profile.sec_per_event / speed;
    let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    let memory = (profile.base_mb + profile.mb_per_thread * u64::from(threads)) as f64 * 1024.0 * 1024.0;
    ResourceDemand {
        serial: seconds(work * profile.serial_fraction),
        parallel: seconds(work * (1.0 - profile.serial_fraction) / f64::from(threads.max(1))),
        memory: (memory / speed) as u64,
        event_size: (profile.kb_per_event as f64 * 1024.0 / speed) as usize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_found_by_name_prefix() {
        assert_eq!(PROFILES.len(), 5);
        assert_eq!(find_profile("GEN-SIM").name, "GEN");
        assert_eq!(find_profile("MiniAOD").name, "MINI");
        assert_eq!(find_profile("unknown").name, "DIGI");
    }

    #[test]
    fn wall_time_follows_amdahl_with_constant_work() {
        let made = find_profile("GEN");
        for threads in [1u32, 2, 8] {
            let demand = compute_demand(made, 1000, threads, 1.0);
            let wall = (demand.serial + demand.parallel).as_secs_f64();
            let expected = 50.0 * (0.3 + 0.7 / f64::from(threads));
            assert!((wall - expected).abs() < 1e-6, "{threads} threads: {wall} and {expected}");
            let work = demand.serial.as_secs_f64() + demand.parallel.as_secs_f64() * f64::from(threads);
            assert!((work - 50.0).abs() < 1e-6, "{threads} threads: {work}");
        }
        assert_eq!(compute_demand(made, 1, 2, 1.0).memory, 2000 * 1024 * 1024);
        assert_eq!(compute_demand(made, 1, 2, 1000.0).memory, 2000 * 1024 * 1024 / 1000);
        assert_eq!(compute_demand(made, 1, 1, 100.0).event_size, 512);
    }
}
