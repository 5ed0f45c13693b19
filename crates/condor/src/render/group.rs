//! The DAG of a work unit: landing, processing nodes, merge, cleanup.

use super::outer::{ABORT, STATUS_INTERVAL};
use super::submits::file_name;
use super::{NodeSize, RenderError, Run, Unit, Words, kind_in_unit, kind_of};
use crate::layout;
use crate::terms::TOO_EARLY;
use std::fmt::Write as _;
use windlass_types::requests::{NodeRole, UnitName};

/// What POST scripts exit with when another attempt would be of no use.
pub(super) const NEVER_AGAIN: u8 = 42;
/// As many of a category as there are, where nothing is said: DAGMan wants a limit for each.
const NO_LIMIT: u64 = 1_000_000;

/// Appends the DAG of unit `number`.
pub(super) fn write(
    text: &mut String,
    run: &Run<'_>,
    words: &Words<'_>,
    number: u32,
    unit: &Unit,
) -> Result<(), RenderError> {
    let dangling = |what| RenderError::Dangling { unit: number as usize, what };
    let sites = words.site_sets.get(unit.sites as usize).ok_or_else(|| dangling("a set of sites"))?;
    let size = *run.unit_sizes.get(unit.size as usize).ok_or_else(|| dangling("a size of a unit"))?;
    let mut group = Group { text, run, words, size: unit.size, nodes: 0 };
    group.head(number);
    group.single(NodeRole::Landing, size.landing, &format!("sites=\"{sites}\""));
    for &(size, count) in &unit.nodes {
        let asked = *run.sizes.get(size as usize).ok_or_else(|| dangling("a size"))?;
        for _ in 0..count {
            group.processing(asked, &words.kinds[size as usize]);
        }
    }
    let reports = group.reports();
    group.single(NodeRole::Merge, size.merge, &reports);
    group.single(NodeRole::Cleanup, size.cleanup, "");
    group.tail(number);
    Ok(())
}

struct Group<'t, 'a> {
    text: &'t mut String,
    run: &'t Run<'a>,
    words: &'t Words<'a>,
    /// Index into [`Run::unit_sizes`].
    size: u32,
    /// Processing nodes so far.
    nodes: u32,
}

/// Writing to a string does not fail.
macro_rules! line {
    ($group:expr, $($said:tt)*) => {{ writeln!($group.text, $($said)*).ok(); }};
}

impl Group<'_, '_> {
    fn head(&mut self, number: u32) {
        line!(self, "# {} of request {}", UnitName(number), super::outer::comment(self.run.request));
        line!(self, "NODE_STATUS_FILE {} {STATUS_INTERVAL}", layout::GROUP_STATUS);
        line!(self, "JOBSTATE_LOG {}", layout::GROUP_JOBSTATE);
    }

    fn processing(&mut self, asked: NodeSize, kind: &str) {
        let index = self.nodes;
        let name = layout::processing_node(index);
        self.node(NodeRole::Processing, &name, kind, asked, &format!("index=\"{index}\""));
        self.nodes += 1;
    }

    /// One of which a unit has one.
    fn single(&mut self, role: NodeRole, asked: NodeSize, vars: &str) {
        let kind = kind_in_unit(role, self.size, self.run.unit_sizes.len());
        self.node(role, kind_of(role), &kind, asked, vars);
    }

    /// `vars`: what else its submit file has to know.
    fn node(&mut self, role: NodeRole, name: &str, kind: &str, asked: NodeSize, vars: &str) {
        let NodeSize { cpus, memory_mb, disk_kb, runtime_sec } = asked;
        let (file, program, retries) = (file_name(role), self.words.program, self.run.retries.of(role));
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
            "SCRIPT POST {name} {program} condor {script} $JOB $RETURN $RETRY $MAX_RETRIES $JOBID {kind}"
        );
        line!(self, "RETRY {name} {retries} UNLESS-EXIT {NEVER_AGAIN}");
        if role != NodeRole::Landing {
            line!(self, "CATEGORY {name} {role}");
        }
    }

    /// What the merge has to be sent: these, and not all that lies beside them.
    fn reports(&self) -> String {
        let names = (0..self.nodes).map(|index| format!("proc_{index}.json")).collect::<Vec<_>>();
        format!("reports=\"{}\"", names.join(","))
    }

    fn tail(&mut self, number: u32) {
        let (program, pause) = (self.words.program, self.run.care.look_again_sec());
        line!(self, "");
        line!(self, "VARS ALL_NODES unit=\"{}\"", UnitName(number));
        line!(self, "SCRIPT DEFER {TOO_EARLY} {pause} PRE ALL_NODES {program} condor pre $JOB $RETRY");
        line!(self, "ABORT-DAG-ON ALL_NODES {ABORT} RETURN 1");
        for role in [NodeRole::Processing, NodeRole::Merge, NodeRole::Cleanup] {
            let most = self.run.throttles.get(role.name()).copied().unwrap_or(NO_LIMIT).max(1);
            line!(self, "MAXJOBS {role} {most}");
        }
        self.edges();
    }

    /// A unit without processing nodes is merged where it lands.
    fn edges(&mut self) {
        if self.nodes == 0 {
            line!(self, "PARENT {} CHILD {}", layout::LANDING, layout::MERGE);
        } else {
            write!(self.text, "PARENT {} CHILD", layout::LANDING).ok();
            self.processing_names();
            line!(self, "");
            write!(self.text, "PARENT").ok();
            self.processing_names();
            line!(self, " CHILD {}", layout::MERGE);
        }
        line!(self, "PARENT {} CHILD {}", layout::MERGE, layout::CLEANUP);
    }

    fn processing_names(&mut self) {
        for index in 0..self.nodes {
            write!(self.text, " {}", layout::processing_node(index)).ok();
        }
    }
}
