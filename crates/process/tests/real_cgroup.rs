//! The memory cgroup of a slot, in the cgroups of the running system, where they are writable.

use rustix::fs::{Access, access};
use std::fs;
use std::path::Path;
use windlass_process::cgroup::{CgroupPaths, WorkerCgroup};
use windlass_process::process_identity::ProcessIdentity;
use windlass_process::spawn::{BaseEnvironment, EnvironmentAdditions, JobSpawner, SpawnParameters};
use windlass_process::{Pid, child_wait, spawn};
use windlass_types::Bytes;
use windlass_types::worker_messages::ProcessExit;

fn start(command: &str, enter: Option<&Path>) -> Result<Pid, spawn::SpawnError> {
    let spawner = JobSpawner::new(Path::new("/"))?;
    spawner.spawn(&SpawnParameters {
        launcher: &[],
        command,
        environment: &BaseEnvironment::new(std::env::vars_os()),
        additions: &EnvironmentAdditions::default(),
        stdout: spawner.dev_null(),
        stderr: spawner.dev_null(),
        enter,
    })
}

/// `tail` keeps all input that has no line end.
const HOLD_200_MIB: &str = "head -c 209715200 /dev/zero | tail > /dev/null";

#[test]
fn a_slot_cgroup_limits_its_jobs_and_is_removed() {
    let places = CgroupPaths::of_this_process();
    let groups = WorkerCgroup::create(&places, ProcessIdentity::own().unwrap());
    let v1 = fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = v1.lines().find_map(|line| Some(line.split_once(":memory:")?.1.to_owned()));
    let writable =
        own.is_some_and(|own| access(format!("/sys/fs/cgroup/memory{own}"), Access::WRITE_OK).is_ok());
    assert!(groups.is_some() || !writable, "a cgroup would have been available and was not used");
    let Some(groups) = groups else { return };

    let directory = groups.directory().to_owned();
    let slot = groups.create_slot("slot-0").unwrap();
    slot.enter_thread().unwrap();
    let enter = slot.entry_file();

    let waiting = start("exec sleep 1000", enter.as_deref()).unwrap();
    while !slot.processes().contains(&waiting) {
        assert!(windlass_process::procfs::is_running(waiting));
    }
    windlass_process::process_tree::kill_process(waiting);
    assert_eq!(child_wait::reap_child(waiting).unwrap().exit, ProcessExit::Signal(9));

    assert_eq!(
        child_wait::reap_child(start(HOLD_200_MIB, enter.as_deref()).unwrap()).unwrap().exit,
        ProcessExit::Code(0)
    );
    assert_eq!(slot.oom_kills(), 0);
    slot.set_memory_limit(Bytes(64 << 20)).unwrap();
    assert_eq!(
        child_wait::reap_child(start(HOLD_200_MIB, enter.as_deref()).unwrap()).unwrap().exit,
        ProcessExit::Code(137)
    );
    assert_eq!(slot.oom_kills(), 1);
    slot.clear_memory_limit().unwrap();
    assert_eq!(
        child_wait::reap_child(start(HOLD_200_MIB, enter.as_deref()).unwrap()).unwrap().exit,
        ProcessExit::Code(0)
    );
    assert!(slot.memory().unwrap().anonymous < Bytes(64 << 20));

    slot.leave_thread();
    drop(slot);
    drop(groups);
    assert!(!directory.exists());
}
