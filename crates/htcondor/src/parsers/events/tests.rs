use super::job_events::BackwardSearch;
use super::*;
use proptest::prelude::*;
use std::io::Write as _;

const GROUP: &[u8] = include_bytes!("../../../tests/data/group.dag.nodes.log");
const HELD: &[u8] = include_bytes!("../../../tests/data/held.nodes.log");
const HOLD_RELEASE: &[u8] = include_bytes!("../../../tests/data/dagman.log.hold-release");
const REQUEUED: &[u8] = include_bytes!("../../../tests/data/dagman.log.requeued-43");

#[test]
fn events_of_a_unit_are_parsed() {
    let events = parse_events(GROUP);
    assert_eq!(events.len(), 16, "four nodes, each with four events");
    assert_eq!(events[0].kind, CondorEventKind::Submitted { node: Some("landing".into()) });
    assert_eq!((events[0].cluster, events[0].process, events[0].at), (23, 0, Some(1_794_723_538)));
    let CondorEventKind::Executing { slot, attributes } = &events[1].kind else { panic!("{:?}", events[1]) };
    assert_eq!(slot.as_deref(), Some("slot2_1@127-0-0-1.pool.test"));
    assert_eq!(attributes["GLIDEIN_CMSSite"], "T2_DE_Beta");
    assert_eq!(attributes["Memory"], "128");
    let post = CondorEventKind::PostScript { exit: JobExit::Code(42), node: Some("proc_000002".into()) };
    assert_eq!(events[15].kind, post);
}

#[test]
fn usage_table_is_parsed_by_column() {
    let table = "\t\tUsr 1 02:03:04, Sys 0 00:00:02  -  Run Remote Usage
\t\tUsr 0 00:00:09, Sys 0 00:00:09  -  Total Remote Usage
\tPartitionable Resources :    Usage  Request Allocated Assigned
\t   Cpus                 :     0.01        1         1 
\t   Disk (KB)            :     1        1024      2048 
\t   GPUs                 :                           1 \"GPU-1,GPU-2\"
\t   TimeExecute (s)      :     1                       ";
    let usage = JobUsage::from_lines(&table.split('\n').collect::<Vec<_>>());
    assert_eq!(usage.cpu, Some(JobCpuTime { user_seconds: 93_784, system_seconds: 2 }));
    let amounts = |used, requested, allocated| ResourceAmounts { used, requested, allocated };
    assert_eq!(usage.resources["Cpus"], amounts(Some(0.01), Some(1.0), Some(1.0)));
    assert_eq!(usage.resources["Disk"], amounts(Some(1.0), Some(1024.0), Some(2048.0)));
    assert_eq!(usage.resources["GPUs"], amounts(None, None, Some(1.0)));
    assert_eq!(usage.resources["TimeExecute"], amounts(Some(1.0), None, None));
    assert_eq!(usage.memory(), ResourceAmounts::default());
}

#[test]
fn events_of_one_job_are_selected() {
    let job = in_file(GROUP, 32);
    assert_eq!(job.0.len(), 4);
    assert_eq!(job.exit(), Some(JobExit::Code(42)));
    assert_eq!(job.attribute("GLIDEIN_CMSSite"), Some("T2_DE_Beta"));
    assert_eq!(job.attribute("Nothing"), None);
    assert_eq!(job.slot(), Some("slot2_2@127-0-0-1.pool.test"));
    let memory = ResourceAmounts { used: Some(5.0), requested: Some(100.0), allocated: Some(128.0) };
    assert_eq!(job.usage().map(JobUsage::memory), Some(memory));
    assert_eq!((job.wall_seconds(), job.executions()), (Some(0), 1));
    assert_eq!(in_file(GROUP, 3), JobEvents::default(), "an id with the same prefix is not a match");
}

#[test]
fn held_and_removed_job_is_parsed() {
    let job = in_file(HELD, 108);
    assert_eq!(job.exit(), None, "it did not end by itself");
    let reason = "Error from slot1_1@127-0-0-1.pool.test: memory usage exceeded request_memory";
    assert_eq!(job.last_hold(), Some(&JobHold { reason: reason.into(), code: 21, subcode: 102 }));
    assert_eq!(job.removal(), Some("via condor_rm (by user pool)"));
    assert_eq!(job.usage().and_then(|usage| usage.memory().used), Some(194.0));
    assert_eq!(job.wall_seconds(), Some(6));
    let evicted = job.0.iter().find_map(|event| match &event.kind {
        CondorEventKind::Evicted { reason, .. } => reason.as_deref(),
        _ => None,
    });
    assert_eq!(evicted, Some(reason));
}

#[test]
fn executions_of_a_released_or_requeued_dagman_are_counted() {
    let job = in_file(HOLD_RELEASE, 54);
    assert_eq!(job.executions(), 2);
    assert_eq!(job.last_hold().map(|hold| hold.code), Some(1));
    let requeued = in_file(REQUEUED, 142);
    assert_eq!((requeued.exit(), requeued.executions()), (None, 3), "a requeued job did not end");
}

#[test]
fn signal_is_not_an_exit_code() {
    let log = b"005 (1499.000.000) 2026-02-29 06:19:01 Job terminated.\n\t(0) Abnormal termination (signal 9)\n...\n";
    assert_eq!(in_file(log, 1499).exit(), Some(JobExit::Signal(9)));
}

#[test]
fn incomplete_events_are_ignored() {
    let whole = b"005 (023.000.000) 2026-11-15 06:19:01 Job terminated.\n\t(1) Normal termination (return value 0)\n...\n";
    for cut in 0..whole.len() {
        assert_eq!(parse_events(&whole[..cut]), [], "{cut}");
        assert_eq!(in_file(&whole[..cut], 23), JobEvents::default(), "{cut}");
    }
    // The writer died in the middle, and another event follows.
    let mut broken = whole[..whole.len() - 4].to_vec();
    broken.extend_from_slice(b"009 (024.000.000) 2026-11-15 06:19:02 Job was aborted.\n...\n");
    assert_eq!(parse_events(&broken).len(), 1);
    assert_eq!(in_file(&broken, 23), JobEvents::default());
    assert_eq!(in_file(&broken, 24).0.len(), 1);
}

#[test]
fn calendar_times_are_parsed() {
    for (text, seconds) in [
        ("1970-01-01 00:00:00", Some(0)),
        ("2000-03-01 00:00:00.123 Job", Some(951_868_800)),
        ("2026-11-15 06:19:01 Job", Some(1_794_723_541)),
        ("2026-13-15 06:19:01 Job", None),
        ("11/15 06:19:01 Job executing", None),
        ("", None),
    ] {
        assert_eq!(parse_time(text), seconds, "{text}");
    }
}

#[test]
fn events_before_the_last_submission_are_ignored() {
    // A schedd that lost its queue counts ids from 1 again: earlier events are of another job.
    let mut log = GROUP.to_vec();
    log.extend_from_slice(
        b"000 (032.000.000) 2026-11-16 06:19:06 Job submitted from host: <1>\n    DAG Node: again\n...\n",
    );
    assert_eq!(in_file(&log, 32).0.len(), 1);
}

fn in_file(log: &[u8], cluster: u64) -> JobEvents {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(log).unwrap();
    read_job_events(file.path(), cluster).unwrap()
}

/// The same by reading the whole log.
fn by_reading_all(log: &[u8], cluster: u64) -> JobEvents {
    let events: Vec<CondorEvent> =
        parse_events(log).into_iter().filter(|event| event.cluster == cluster).collect();
    let submitted = events.iter().rposition(|event| matches!(event.kind, CondorEventKind::Submitted { .. }));
    JobEvents(events[submitted.unwrap_or(0)..].to_vec())
}

fn in_pieces(log: &[u8], cluster: u64, mut cuts: Vec<usize>) -> JobEvents {
    cuts.push(0);
    cuts.sort_unstable();
    let mut search = BackwardSearch::new(cluster);
    let mut end = log.len();
    for cut in cuts.into_iter().rev().filter(|cut| *cut <= log.len()) {
        if !search.found_submission() {
            search.prepend(log[cut..end].to_vec(), cut == 0);
        }
        end = cut;
    }
    search.finish()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reading_backwards_in_pieces_equals_reading_all(
        cuts in prop::collection::vec(0..GROUP.len(), 0..40),
        length in 0..=GROUP.len(),
        damage in prop::collection::vec((0..GROUP.len(), any::<u8>()), 0..8),
        cluster in prop::sample::select(vec![23_u64, 26, 27, 32, 33]),
    ) {
        let mut log = GROUP[..length].to_vec();
        for (at, byte) in damage.into_iter().filter(|(at, _)| *at < length) {
            log[at] = byte;
        }
        prop_assert_eq!(in_pieces(&log, cluster, cuts), by_reading_all(&log, cluster));
    }

    #[test]
    fn arbitrary_bytes_do_not_break_backward_reading(log in prop::collection::vec(any::<u8>(), 0..2000), cluster in any::<u64>()) {
        prop_assert_eq!(in_pieces(&log, cluster, Vec::new()), by_reading_all(&log, cluster));
    }
}
