use super::*;
use proptest::prelude::*;
use std::fs::OpenOptions;
use std::io::Write as _;
use tempfile::TempDir;

/// Two units, one of which fails; then a rescue with cluster 58. Written by a real DAGMan.
const RESCUED: &[u8] = include_bytes!("../../tests/data/rescued.workflow.jobstate");
const FIRST: u64 = 15;
const RESCUE: u64 = 58;

struct Run(TempDir);

impl Run {
    fn new() -> Self {
        let run = Self(tempfile::tempdir().unwrap());
        for unit in ["mg_000000", "mg_000001"] {
            std::fs::create_dir(run.0.path().join(unit)).unwrap();
        }
        run
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn watch(&self) -> DagPoller {
        DagPoller::new(self.path())
    }

    fn append(&self, file: &str, text: &[u8]) {
        let path = self.path().join(file);
        OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(text).unwrap();
    }

    /// As DAGMan does it.
    fn replace(&self, file: &str, text: &str) {
        let temporary = self.path().join("temporary");
        std::fs::write(&temporary, text).unwrap();
        std::fs::rename(temporary, self.path().join(file)).unwrap();
    }

    fn dagman(&self, number: u16, cluster: u64, body: &str) {
        let event = format!("{number:03} ({cluster:03}.000.000) 2026-11-16 04:00:30 Said.\n{body}...\n");
        self.append("workflow.dag.dagman.log", event.as_bytes());
    }

    fn submitted(&self, cluster: u64) {
        self.dagman(0, cluster, "");
        self.dagman(1, cluster, "");
    }

    fn ended(&self, cluster: u64, exit: i32, status: u8) {
        let text = format!(r#"{{"exitcode":{exit},"dagman_id":"{cluster}","DagStatus":{status}}}"#);
        self.replace("workflow.dag.metrics", &text);
        self.dagman(5, cluster, &format!("\t(1) Normal termination (return value {exit})\n"));
    }
}

/// The first bytes of the log, up to the line that contains `text`, that line included.
fn up_to(text: &str) -> &'static [u8] {
    let log = str::from_utf8(RESCUED).unwrap();
    let found = log.find(text).unwrap();
    &RESCUED[..=found + log[found..].find('\n').unwrap()]
}

fn head(counts: &str, node_ads: &str) -> String {
    format!(
        "[\n  Type = \"DagStatus\";\n  DagStatus = 3; /* \"STATUS_SUBMITTED ()\" */\n{counts}]\n{node_ads}"
    )
}

fn group(total: u64, done: u64, queued: u64, held: u64) -> String {
    let unready = total - done - queued;
    let counts = format!(
        "  NodesTotal = {total};\n  NodesDone = {done};\n  NodesQueued = {queued};\n  NodesUnready = {unready};\n  \
         JobProcsHeld = {held};\n  JobProcsIdle = 0; /* includes held */\n"
    );
    head(&counts, "")
}

fn completed(look: &DagSnapshot) -> Vec<u32> {
    let completed = look.units.iter().filter(|update| update.status == RequestUnitStatus::Completed);
    completed.map(|update| update.number).collect()
}

#[test]
fn run_is_followed_from_submission_to_its_end() {
    let run = Run::new();
    let mut watch = run.watch();
    assert_eq!(watch.poll().state, DagState::NotYet);
    run.submitted(FIRST);
    let look = watch.poll();
    assert_eq!((look.state, look.cluster), (DagState::Running, Some(FIRST)));
    run.append("workflow.jobstate", up_to("mg_000000 POST_SCRIPT_SUCCESS"));
    let look = watch.poll();
    assert_eq!(look.state, DagState::Running);
    let updates: Vec<_> = look.units.iter().map(|update| (update.number, update.status)).collect();
    assert_eq!(updates, [(1, RequestUnitStatus::Failed), (0, RequestUnitStatus::Completed)]);
    assert_eq!((look.units_completed, look.units_failed), (1, 1));
    assert!(look.units[0].seq < look.units[1].seq);
    assert_eq!(watch.poll().units, [], "an update is not returned twice");
    run.ended(FIRST, 1, 2);
    let look = watch.poll();
    assert_eq!((look.state, look.read_error), (DagState::Over(DagOutcome::Failed), None));
}

#[test]
fn end_of_the_previous_run_does_not_end_the_rescue() {
    let run = Run::new();
    run.submitted(FIRST);
    run.append("workflow.jobstate", up_to("DAGMAN_FINISHED 1"));
    run.ended(FIRST, 1, 2);
    let mut rescue = DagPoller::for_cluster(run.path(), Some(RESCUE), 0);
    assert_eq!(rescue.poll().state, DagState::NotYet);
    run.submitted(RESCUE);
    let mut latest = run.watch();
    assert_eq!(rescue.poll().state, DagState::Running);
    assert_eq!(latest.poll().state, DagState::Running);
    run.append("workflow.jobstate", &RESCUED[up_to("DAGMAN_FINISHED 1").len()..]);
    run.ended(RESCUE, 0, 0);
    let look = rescue.poll();
    assert_eq!(look.state, DagState::Over(DagOutcome::Completed));
    assert_eq!(completed(&look), [1], "unit 0 was reported before");
    assert_eq!((look.units_completed, look.units_failed), (2, 0));
}

#[test]
fn update_numbers_survive_a_restart() {
    let run = Run::new();
    run.append("workflow.jobstate", RESCUED);
    let all = run.watch().poll().units;
    assert_eq!(all.len(), 3);
    assert!(all.is_sorted_by_key(|update| update.seq));
    for (index, update) in all.iter().enumerate() {
        let after = DagPoller::for_cluster(run.path(), None, update.seq).poll().units;
        assert_eq!(after, all[index + 1..]);
    }
    // The same when it was read piece by piece.
    let pieces = Run::new();
    let mut watch = pieces.watch();
    let mut read = Vec::new();
    for piece in RESCUED.chunks(37) {
        pieces.append("workflow.jobstate", piece);
        read.extend(watch.poll().units);
    }
    assert_eq!(read, all);
}

#[test]
fn units_missing_in_the_log_are_found_in_the_status_file() {
    let run = Run::new();
    run.submitted(FIRST);
    let mut watch = run.watch();
    run.append("workflow.jobstate", up_to("mg_000001 POST_SCRIPT_FAILURE"));
    watch.poll();
    let node = "[\n  Type = \"NodeStatus\";\n  Node = \"mg_000000\";\n  NodeStatus = 5;\n]\n";
    run.replace("workflow.status", &head("  NodesTotal = 2;\n  NodesDone = 1;\n", node));
    let lost = watch.poll();
    assert_eq!((completed(&lost), lost.units_completed), (vec![0], 1));
    run.append("workflow.jobstate", &RESCUED[up_to("mg_000001 POST_SCRIPT_FAILURE").len()..]);
    let later = watch.poll();
    assert_eq!(completed(&later), [1]);
    assert!(lost.units[0].seq < later.units[0].seq);
    let after = DagPoller::for_cluster(run.path(), None, lost.units[0].seq).poll();
    assert_eq!(after.units.last(), later.units.last(), "the next number is that of its line again");
}

#[test]
fn update_numbers_continue_in_a_replaced_log() {
    let run = Run::new();
    run.append("workflow.jobstate", RESCUED);
    let mut watch = run.watch();
    let last = watch.poll().units.last().unwrap().seq;
    let other = up_to("mg_000000 POST_SCRIPT_SUCCESS").to_vec();
    std::fs::write(
        run.path().join("workflow.jobstate"),
        [b"1 x SUBMIT 1.0 - - 1\n", other.as_slice()].concat(),
    )
    .unwrap();
    let look = watch.poll();
    assert_eq!((look.units.len(), look.units_completed), (2, 1));
    assert!(look.units.iter().all(|update| update.seq > last));
    // Also if it was replaced between two polls.
    let look = DagPoller::for_cluster(run.path(), None, last).poll();
    assert_eq!(look.units.len(), 2);
    assert!(look.units.iter().all(|update| update.seq > last));
}

#[test]
fn rejected_dag_has_its_reason() {
    let run = Run::new();
    run.submitted(18);
    run.append("workflow.dag.dagman.out", include_bytes!("../../tests/data/unparsable.dag.dagman.out"));
    run.dagman(5, 18, "\t(1) Normal termination (return value 1)\n");
    let DagState::Over(DagOutcome::Broken(reason)) = run.watch().poll().state else { panic!() };
    assert!(reason.contains("workflow.dag (line 2): ERROR: expected JOB"), "{reason}");
}

#[test]
fn held_removed_and_aborted_dags_are_distinguished() {
    let run = Run::new();
    run.submitted(54);
    run.append(
        "workflow.jobstate",
        b"1 INTERNAL *** DAGMAN_STARTED 54.0 ***\n2 INTERNAL *** DAGMAN_FINISHED 3 ***\n",
    );
    run.dagman(12, 54, "\tvia condor_hold (by user pool)\n\tCode 1 Subcode 0\n");
    let mut watch = run.watch();
    let look = watch.poll();
    assert_eq!(look.state, DagState::Running, "a held DAG continues when it is released");
    assert_eq!(look.dagman_held.map(|hold| hold.reason).as_deref(), Some("via condor_hold (by user pool)"));
    run.dagman(13, 54, "");
    assert_eq!(watch.poll().dagman_held, None);
    run.dagman(9, 54, "\tvia condor_rm (by user pool)\n");
    assert_eq!(watch.poll().state, DagState::Over(DagOutcome::Removed));
    run.ended(54, 1, 3);
    assert_eq!(watch.poll().state, DagState::Over(DagOutcome::Aborted));
}

#[test]
fn unreadable_file_makes_the_state_unknown_but_keeps_counts() {
    let run = Run::new();
    run.submitted(FIRST);
    run.append("workflow.jobstate", up_to("mg_000000 POST_SCRIPT_SUCCESS"));
    let mut watch = run.watch();
    watch.poll();
    std::fs::create_dir(run.path().join("workflow.dag.metrics")).unwrap();
    let look = watch.poll();
    assert_eq!(look.state, DagState::Unknown);
    assert!(look.read_error.is_some_and(|problem| problem.contains("workflow.dag.metrics")));
    assert_eq!((look.units_completed, look.units_failed), (1, 1));
    std::fs::remove_dir(run.path().join("workflow.dag.metrics")).unwrap();
    assert_eq!(watch.poll().state, DagState::Running);
    let gone = DagPoller::new(&run.path().join("nothing")).poll();
    assert_eq!(gone.state, DagState::Unknown);
}

#[test]
fn nodes_inside_units_are_counted() {
    let run = Run::new();
    run.append("workflow.jobstate", up_to("mg_000001 EXECUTE"));
    let mut watch = run.watch();
    run.replace("mg_000000/group.status", &group(6, 1, 3, 0));
    run.replace("mg_000001/group.status", &group(6, 2, 2, 0));
    run.replace("mg_000000/elected.inc", "MY.DESIRED_Sites = \"T2_DE_Beta\"\n");
    let expected = NodeCounts { idle: 4, running: 5, done: 3, failed: 0, held: 0 };
    let look = watch.poll();
    assert_eq!(look.counts, expected);
    let landed = BTreeMap::from([("T2_DE_Beta".to_owned(), 3)]);
    assert_eq!(look.running_by_site, landed, "the other unit has not landed");
    run.replace("mg_000000/group.status", &group(6, 6, 0, 0));
    run.append("workflow.jobstate", &RESCUED[up_to("mg_000001 EXECUTE").len()..]);
    run.replace("mg_000001/group.status", &group(6, 6, 0, 0));
    let look = watch.poll();
    assert_eq!(look.counts, NodeCounts { done: 12, ..NodeCounts::default() });
    assert_eq!(run.watch().poll().counts, look.counts, "a new poller counts the same");
}

#[test]
fn failed_nodes_of_an_aborted_unit_come_from_its_metrics() {
    let run = Run::new();
    run.append("workflow.jobstate", up_to("mg_000001 POST_SCRIPT_FAILURE"));
    run.append("mg_000001/group.status", include_bytes!("../../tests/data/group.dag.status.aborted"));
    run.append("mg_000001/group.dag.metrics", include_bytes!("../../tests/data/group.dag.metrics.aborted"));
    let counts = run.watch().poll().counts;
    assert_eq!(counts, NodeCounts { idle: 4, running: 0, done: 1, failed: 1, held: 0 });
}

#[test]
fn held_nodes_have_their_hold_reason() {
    let run = Run::new();
    run.append("workflow.jobstate", up_to("mg_000001 EXECUTE"));
    let node = "[\n  Type = \"NodeStatus\";\n  Node = \"a\";\n  NodeStatus = 3;\n  JobProcsHeld = 1;\n]\n";
    run.replace("mg_000001/group.status", &(group(2, 1, 1, 1) + node));
    run.append("mg_000001/group.jobstate", b"1 a SUBMIT 108.0 - - 1\n2 a JOB_HELD 108.0 - - 1\n");
    run.append("mg_000001/group.dag.nodes.log", include_bytes!("../../tests/data/held.nodes.log"));
    let look = run.watch().poll();
    assert_eq!(look.counts.held, 1);
    assert_eq!((look.held_nodes[0].unit, look.held_nodes[0].node.as_str()), (Some(1), "a"));
    assert_eq!((look.held_nodes[0].hold.code, look.held_nodes[0].hold.subcode), (21, 102));
    assert!(look.held_nodes[0].hold.reason.contains("memory usage exceeded"));
}

#[test]
fn a_dag_without_units_counts_its_own_nodes() {
    let run = Run(tempfile::tempdir().unwrap());
    run.submitted(7);
    run.append("workflow.jobstate", b"1 INTERNAL *** DAGMAN_STARTED 7.0 ***\n1 train SUBMIT 8.0 - - 1\n");
    run.replace("workflow.status", &group(3, 1, 1, 0));
    let look = run.watch().poll();
    assert_eq!(look.counts, NodeCounts { idle: 1, running: 1, done: 1, failed: 0, held: 0 });
    assert_eq!((look.units.len(), look.units_completed), (0, 0));
}

#[test]
fn many_completed_units_are_counted_over_several_polls() {
    let run = Run::new();
    let mut log = Vec::new();
    for unit in 0..225 {
        std::fs::create_dir_all(run.path().join(format!("mg_{unit:06}"))).unwrap();
        run.replace(&format!("mg_{unit:06}/group.status"), &group(5, 5, 0, 0));
        log.push(format!("1 mg_{unit:06} POST_SCRIPT_SUCCESS 9.0 - - {unit}\n"));
    }
    run.append("workflow.jobstate", log.concat().as_bytes());
    let mut watch = run.watch();
    let done: Vec<u64> = (0..4).map(|_| watch.poll().counts.done).collect();
    assert_eq!(done, [500, 1000, 1125, 1125]);
    run.submitted(1);
    run.ended(1, 0, 0);
    assert_eq!(run.watch().poll().counts.done, 1125, "all units of an ended DAG are counted at once");
}

/// A run that was rescued, as a real DAGMan left it.
const LEFT: [(&str, &[u8]); 4] = [
    ("workflow.dag.dagman.log", include_bytes!("../../tests/data/rescued.workflow.dag.dagman.log")),
    ("workflow.jobstate", RESCUED),
    ("workflow.status", include_bytes!("../../tests/data/rescued.workflow.status")),
    ("workflow.dag.metrics", include_bytes!("../../tests/data/rescued.workflow.dag.metrics")),
];

fn left(lengths: [usize; 4]) -> Run {
    let run = Run::new();
    for ((name, bytes), length) in LEFT.iter().zip(lengths) {
        run.append(name, &bytes[..length.min(bytes.len())]);
    }
    run
}

#[test]
fn the_rescued_run_is_completed() {
    let look = left([usize::MAX; 4]).watch().poll();
    assert_eq!((look.state, look.cluster), (DagState::Over(DagOutcome::Completed), Some(RESCUE)));
    assert_eq!((look.units_completed, look.units.len()), (2, 3));
}

#[test]
fn completion_requires_all_units() {
    let look = left([usize::MAX, 0, 0, usize::MAX]).watch().poll();
    assert_eq!(look.state, DagState::Unknown, "its log and its status file are lost");
    assert!(look.read_error.is_some_and(|problem| problem.contains("2 completed units, but only 0")));
    let look = left([usize::MAX, 0, usize::MAX, usize::MAX]).watch().poll();
    assert_eq!(look.state, DagState::Over(DagOutcome::Completed), "the status file lists them all");
    assert_eq!(completed(&look), [0, 1]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// However the log is split, and wherever it ends: the updates are the first of those of the whole log.
    #[test]
    fn truncated_log_gives_only_the_first_updates(cuts in prop::collection::vec(0..RESCUED.len(), 0..8)) {
        let whole = Run::new();
        whole.append("workflow.jobstate", RESCUED);
        let all = whole.watch().poll().units;
        let run = Run::new();
        let mut watch = run.watch();
        let mut cuts = cuts;
        cuts.sort_unstable();
        let (mut begin, mut read) = (0, Vec::new());
        for cut in cuts {
            run.append("workflow.jobstate", &RESCUED[begin..cut]);
            begin = cut;
            read.extend(watch.poll().units);
        }
        prop_assert_eq!(&read[..], &all[..read.len()]);
    }

    /// For any truncation: completed units stay completed, and the end is reported only after all units.
    #[test]
    fn truncated_files_never_complete_a_run(
        cuts in prop::array::uniform4(prop_oneof![2 => 0..1500_usize, 1 => Just(usize::MAX)]),
    ) {
        let look = left(cuts).watch().poll();
        let all_there = LEFT.iter().zip(cuts).all(|((_, bytes), length)| length >= bytes.len());
        match look.state {
            DagState::Over(DagOutcome::Completed) => prop_assert_eq!(look.units_completed, 2),
            // The first run did fail.
            DagState::Over(DagOutcome::Failed) => prop_assert!(!all_there),
            DagState::Over(other) => prop_assert!(false, "{:?}", other),
            DagState::NotYet | DagState::Running | DagState::Unknown => {}
        }
    }
}
