//! The memory group of a slot, in the cgroups of this very system, where we may write to them.

use rustix::fs::{Access, access};
use std::fs;
use std::path::Path;
use windlass_proc::cgroup::{Cgroups, Places};
use windlass_proc::identity::Identity;
use windlass_proc::spawn::{Additions, Environment, Launch, Spawner};
use windlass_proc::{Pid, spawn, wait};
use windlass_types::Bytes;
use windlass_types::work::Exit;

fn start(command: &str, enter: Option<&Path>) -> Result<Pid, spawn::Error> {
    let spawner = Spawner::new(Path::new("/"))?;
    spawner.spawn(&Launch {
        launcher: &[],
        command,
        environment: &Environment::new(std::env::vars_os()),
        additions: &Additions::default(),
        stdout: spawner.null(),
        stderr: spawner.null(),
        enter,
    })
}

/// `tail` keeps all of what has no line end.
const HOLD_200_MIB: &str = "head -c 209715200 /dev/zero | tail > /dev/null";

#[test]
fn a_slots_group_holds_its_jobs_to_a_limit_and_goes_away_afterwards() {
    let places = Places::of_this_process();
    let groups = Cgroups::create(&places, Identity::own().unwrap());
    let v1 = fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = v1.lines().find_map(|line| Some(line.split_once(":memory:")?.1.to_owned()));
    let writable =
        own.is_some_and(|own| access(format!("/sys/fs/cgroup/memory{own}"), Access::WRITE_OK).is_ok());
    assert!(groups.is_some() || !writable, "we could have had a group and did not take it");
    let Some(groups) = groups else { return };

    let directory = groups.directory().to_owned();
    let slot = groups.slot("slot-0").unwrap();
    slot.enter_thread().unwrap();
    let enter = slot.entry();

    let waiting = start("exec sleep 1000", enter.as_deref()).unwrap();
    while !slot.processes().contains(&waiting) {
        assert!(windlass_proc::procfs::is_running(waiting));
    }
    windlass_proc::tree::kill(waiting);
    assert_eq!(wait::reap(waiting).unwrap().exit, Exit::Signal(9));

    assert_eq!(wait::reap(start(HOLD_200_MIB, enter.as_deref()).unwrap()).unwrap().exit, Exit::Code(0));
    assert_eq!(slot.oom_kills(), 0);
    slot.limit(Bytes(64 << 20)).unwrap();
    assert_eq!(wait::reap(start(HOLD_200_MIB, enter.as_deref()).unwrap()).unwrap().exit, Exit::Code(137));
    assert_eq!(slot.oom_kills(), 1);
    slot.unlimit().unwrap();
    assert_eq!(wait::reap(start(HOLD_200_MIB, enter.as_deref()).unwrap()).unwrap().exit, Exit::Code(0));
    assert!(slot.anonymous_memory().unwrap() < Bytes(64 << 20));

    slot.leave_thread();
    drop(slot);
    drop(groups);
    assert!(!directory.exists());
}
