//! The DAG of a work unit: landing, processing nodes, merge, cleanup.

use super::outer_dag::{ABORT_EXIT_CODE, STATUS_INTERVAL};
use super::submit_files::submit_file_name;
use super::{
    DagRenderError, DagUnit, NodeResources, QuotedFragments, RequestDagRun, role_group, unit_node_group,
};
use crate::file_layout;
use crate::script_settings::TOO_EARLY_EXIT_CODE;
use std::fmt::Write as _;
use windlass_types::requests::{NodeRole, WorkUnitName};

/// The exit code of POST scripts if another attempt would be useless.
pub(super) const NO_RETRY_EXIT_CODE: u8 = 42;
/// The default limit of a category: all of its nodes. DAGMan requires a limit for each category.
const UNLIMITED_JOBS: u64 = 1_000_000;

/// Appends the DAG of unit `number`.
pub(super) fn write_unit_dag(
    text: &mut String,
    run: &RequestDagRun<'_>,
    words: &QuotedFragments<'_>,
    number: u32,
    unit: &DagUnit,
) -> Result<(), DagRenderError> {
    let dangling = |what| DagRenderError::InvalidIndex { unit: number as usize, what };
    let sites = words.site_sets.get(unit.sites as usize).ok_or_else(|| dangling("a set of sites"))?;
    let size = *run.unit_sizes.get(unit.size as usize).ok_or_else(|| dangling("a unit size"))?;
    let mut group = UnitDagWriter { text, run, fragments: words, size: unit.size, node_count: 0 };
    group.write_head(number);
    group.write_single_node(NodeRole::Landing, size.landing, &format!("sites=\"{sites}\""));
    for &(size, count) in &unit.nodes {
        let asked = *run.sizes.get(size as usize).ok_or_else(|| dangling("a size"))?;
        for _ in 0..count {
            group.write_processing_nodes(asked, &words.node_groups[size as usize]);
        }
    }
    let reports = group.report_list();
    group.write_single_node(NodeRole::Merge, size.merge, &reports);
    group.write_single_node(NodeRole::Cleanup, size.cleanup, "");
    group.write_tail(number);
    Ok(())
}

struct UnitDagWriter<'t, 'a> {
    text: &'t mut String,
    run: &'t RequestDagRun<'a>,
    fragments: &'t QuotedFragments<'a>,
    /// Index into [`RequestDagRun::unit_sizes`].
    size: u32,
    /// The number of processing nodes so far.
    node_count: u32,
}

/// Writing to a string does not fail.
macro_rules! line {
    ($group:expr, $($message:tt)*) => {{ writeln!($group.text, $($message)*).ok(); }};
}

impl UnitDagWriter<'_, '_> {
    fn write_head(&mut self, number: u32) {
        line!(
            self,
            "# {} of request {}",
            WorkUnitName(number),
            super::outer_dag::sanitize_comment(self.run.request)
        );
        line!(self, "NODE_STATUS_FILE {} {STATUS_INTERVAL}", file_layout::GROUP_STATUS);
        line!(self, "JOBSTATE_LOG {}", file_layout::GROUP_JOBSTATE);
    }

    fn write_processing_nodes(&mut self, asked: NodeResources, node_group: &str) {
        let index = self.node_count;
        let name = file_layout::processing_node_name(index);
        self.write_node(NodeRole::Processing, &name, node_group, asked, &format!("index=\"{index}\""));
        self.node_count += 1;
    }

    /// A node of which each unit has one.
    fn write_single_node(&mut self, role: NodeRole, asked: NodeResources, vars: &str) {
        let node_group = unit_node_group(role, self.size, self.run.unit_sizes.len());
        self.write_node(role, role_group(role), &node_group, asked, vars);
    }

    /// `vars`: further values for its submit file.
    fn write_node(&mut self, role: NodeRole, name: &str, node_group: &str, asked: NodeResources, vars: &str) {
        let NodeResources { cpus, memory_mb, disk_kb, runtime_sec } = asked;
        let (file, program, retries) =
            (submit_file_name(role), self.fragments.program, self.run.retries.for_role(role));
        let script = if role == NodeRole::Landing { "elect" } else { "post" };
        line!(self, "");
        line!(self, "JOB {name} ../{file}");
        line!(
            self,
            "VARS {name} cpus=\"{}\" memory=\"{memory_mb}\" disk=\"{disk_kb}\" runtime=\"{runtime_sec}\" {vars}",
            cpus.max(1)
        );
        line!(
            self,
            "SCRIPT POST {name} {program} condor {script} $JOB $RETURN $RETRY $MAX_RETRIES $JOBID {node_group}"
        );
        line!(self, "RETRY {name} {retries} UNLESS-EXIT {NO_RETRY_EXIT_CODE}");
        if role != NodeRole::Landing {
            line!(self, "CATEGORY {name} {role}");
        }
    }

    /// The files to transfer to the merge: only these, not everything beside them.
    fn report_list(&self) -> String {
        let names = (0..self.node_count).map(|index| format!("proc_{index}.json")).collect::<Vec<_>>();
        format!("reports=\"{}\"", names.join(","))
    }

    fn write_tail(&mut self, number: u32) {
        let (program, pause) = (self.fragments.program, self.run.retry_policy.recheck_interval_sec());
        line!(self, "");
        line!(self, "VARS ALL_NODES unit=\"{}\"", WorkUnitName(number));
        line!(
            self,
            "SCRIPT DEFER {TOO_EARLY_EXIT_CODE} {pause} PRE ALL_NODES {program} condor pre $JOB $RETRY"
        );
        line!(self, "ABORT-DAG-ON ALL_NODES {ABORT_EXIT_CODE} RETURN 1");
        for role in [NodeRole::Processing, NodeRole::Merge, NodeRole::Cleanup] {
            let most = self.run.throttles.get(role.name()).copied().unwrap_or(UNLIMITED_JOBS).max(1);
            line!(self, "MAXJOBS {role} {most}");
        }
        self.write_edges();
    }

    /// In a unit without processing nodes, the merge follows the landing.
    fn write_edges(&mut self) {
        if self.node_count == 0 {
            line!(self, "PARENT {} CHILD {}", file_layout::LANDING_NODE, file_layout::MERGE_NODE);
        } else {
            write!(self.text, "PARENT {} CHILD", file_layout::LANDING_NODE).ok();
            self.write_processing_names();
            line!(self, "");
            write!(self.text, "PARENT").ok();
            self.write_processing_names();
            line!(self, " CHILD {}", file_layout::MERGE_NODE);
        }
        line!(self, "PARENT {} CHILD {}", file_layout::MERGE_NODE, file_layout::CLEANUP_NODE);
    }

    fn write_processing_names(&mut self) {
        for index in 0..self.node_count {
            write!(self.text, " {}", file_layout::processing_node_name(index)).ok();
        }
    }
}
