//! Whether a worker that the database remembers is still alive, as far as this machine can tell.

use windlass_store::model::NewWorker;

/// A worker on another machine counts as alive: from here nobody can say otherwise.
pub(crate) fn is_alive(worker: &NewWorker) -> bool {
    let here = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if worker.host != here.trim() {
        return true;
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", worker.pid)).unwrap_or_default();
    worker.boot_id == boot.trim() && start_ticks(&stat) == Some(worker.pid_start_ticks)
}

/// Field 22 of `/proc/PID/stat`, counted behind the command name, which may contain anything; `None` for a zombie.
fn start_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    if state == "Z" || state == "X" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_found_behind_any_name() {
        let stat = "12 (a) b) S 1 12 12 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 98765 1 2";
        assert_eq!(start_ticks(stat), Some(98765));
        assert_eq!(start_ticks(&stat.replace(") S", ") Z")), None);
        assert_eq!(start_ticks(""), None);
    }

    #[test]
    fn this_process_is_alive() {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        assert!(start_ticks(&stat).is_some_and(|ticks| ticks > 0));
    }
}
