//! Uses real CPU time and memory.

use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::Duration;

/// Allocated memory, with every page touched.
pub(super) fn allocate_memory(bytes: u64) -> Vec<u8> {
    let mut memory = Vec::new();
    fill_memory(&mut memory, bytes as usize);
    memory
}

fn fill_memory(memory: &mut Vec<u8>, size: usize) {
    // The system may leave out pages that were never written. Never zero, which it might share.
    memory.resize(size, 0xa5);
    black_box(memory);
}

/// Allocates piece by piece, up to a limit.
pub(super) fn grow_memory(most: u64) {
    const PIECE: usize = 4 << 20;
    let mut held: Vec<Vec<u8>> = Vec::new();
    for _ in 0..most.div_ceil(PIECE as u64) {
        held.push(allocate_memory(PIECE as u64));
    }
    black_box(&held);
}

/// One thread alone, then all of them, each until its own CPU clock has reached its share: load on the machine
/// changes the wall time and not the amount of work.
pub(super) fn use_cpu(serial: Duration, parallel: Duration, threads: u32) {
    spend_cpu_time(serial);
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(|| spend_cpu_time(parallel));
        }
        spend_cpu_time(parallel);
    });
}

fn spend_cpu_time(time: Duration) {
    let until = thread_time() + time;
    let mut value = 1u64;
    while thread_time() < until {
        for _ in 0..5_000 {
            value = black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

fn thread_time() -> Duration {
    clock_time(ClockId::ThreadCPUTime)
}

/// CPU time of this process so far.
pub(super) fn process_time() -> Duration {
    clock_time(ClockId::ProcessCPUTime)
}

fn clock_time(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_generator_uses_requested_cpu_and_memory() {
        let before = process_time();
        use_cpu(Duration::from_millis(10), Duration::from_millis(10), 3);
        assert!(process_time() >= before + Duration::from_millis(40));
        assert_eq!(allocate_memory(1 << 20).len(), 1 << 20);
    }
}
