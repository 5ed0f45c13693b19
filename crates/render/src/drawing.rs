//! The input of the renderers: boxes in stages, and links between them.

use windlass_core::reuse::ReuseDecision;
use windlass_core::workflow_outline::{LinkShape, OutlineGroup, WorkflowOutline};
use windlass_types::{JobStatus, Resources, StatusCounts, format_duration};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct GraphDrawing {
    /// Nodes by stage, as indices into `nodes`; every node is in one stage.
    pub stages: Vec<Vec<usize>>,
    /// The headings of the stages, one per stage.
    pub headings: Vec<String>,
    pub nodes: Vec<DrawingNode>,
    pub links: Vec<DrawingLink>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct DrawingNode {
    pub label: String,
    /// The number of jobs that it represents.
    pub jobs: u32,
    /// A smaller line below the label; may be empty.
    pub detail: String,
    pub tone: StatusTone,
    /// Whether it is on the critical path.
    pub is_critical: bool,
}

/// The meaning of the color of a box or bar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusTone {
    #[default]
    Plain,
    /// To be run, or running.
    Active,
    /// Completed, or reused.
    Good,
    Bad,
    /// Waiting, or skipped.
    Quiet,
}

impl StatusTone {
    pub(crate) const fn class(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Active => "active",
            Self::Good => "good",
            Self::Bad => "bad",
            Self::Quiet => "quiet",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct DrawingLink {
    pub from: usize,
    pub to: usize,
    /// May be empty.
    pub label: String,
    /// Whether it is part of the critical path.
    pub is_critical: bool,
}

impl GraphDrawing {
    /// Creates a drawing of an outline with its resource requests. The caller may change details and tones
    /// afterwards.
    pub fn from_outline(outline: &WorkflowOutline) -> Self {
        let stages = outline.stages.iter().map(|stage| stage.groups.iter().map(|&g| g as usize).collect());
        let heading = |stage: &windlass_core::workflow_outline::OutlineStage| {
            let number = match stage.last - stage.first {
                0 => format!("stage {}", stage.first),
                _ => format!("stages {}–{}", stage.first, stage.last),
            };
            format!("{number} · {}", render_count(stage.jobs, "job"))
        };
        let link = |link: &windlass_core::workflow_outline::OutlineLink| {
            let (from, to) = (link.from as usize, link.to as usize);
            let several = outline.groups[from].jobs > 1 || outline.groups[to].jobs > 1;
            let label = match link.shape {
                _ if !several => "",
                LinkShape::All => "all",
                LinkShape::OneToOne => "1:1",
                LinkShape::Some => "some",
            };
            DrawingLink { from, to, label: label.to_owned(), is_critical: link.is_critical }
        };
        Self {
            stages: stages.collect(),
            headings: outline.stages.iter().map(heading).collect(),
            nodes: outline.groups.iter().map(node_of_group).collect(),
            links: outline.links.iter().map(link).collect(),
        }
    }

    /// Shows in each box how many of its jobs run and how many are reused. The drawing must be of the same
    /// outline.
    pub fn show_decisions(&mut self, outline: &WorkflowOutline, decisions: &[ReuseDecision]) {
        let mut runs = vec![0u32; self.nodes.len()];
        for (decision, &group) in decisions.iter().zip(&outline.group_of) {
            runs[group as usize] += u32::from(decision.runs());
        }
        for (node, runs) in self.nodes.iter_mut().zip(runs) {
            let reused = node.jobs - runs.min(node.jobs);
            (node.tone, node.detail) = match (runs, reused) {
                (0, _) => (StatusTone::Good, "reused".to_owned()),
                (_, 0) => (
                    StatusTone::Active,
                    if node.jobs == 1 { "runs".to_owned() } else { "all run".to_owned() },
                ),
                (runs, reused) => (StatusTone::Active, format!("{runs} run · {reused} reused")),
            };
        }
    }

    /// Colors each box by the most important state of its jobs, and counts the states. The drawing must be of the
    /// same outline.
    pub fn show_statuses(&mut self, outline: &WorkflowOutline, status: impl Fn(u32) -> JobStatus) {
        let mut counts = vec![StatusCounts::default(); self.nodes.len()];
        for (job, &group) in (0u32..).zip(&outline.group_of) {
            counts[group as usize].add(status(job), 1);
        }
        for (node, counts) in self.nodes.iter_mut().zip(counts) {
            let present = || counts.iter().filter(|(_, n)| *n > 0);
            node.tone = tone_of_counts(&counts);
            node.detail = match node.jobs {
                1 => present().map(|(status, _)| status.to_string()).collect(),
                _ => present().map(|(status, n)| format!("{n} {status}")).collect::<Vec<_>>().join(" · "),
            };
        }
    }

    /// Returns the stage of each node.
    pub(crate) fn stage_of(&self) -> Vec<usize> {
        let mut stage_of = vec![0; self.nodes.len()];
        for (stage, nodes) in self.stages.iter().enumerate() {
            for &node in nodes {
                stage_of[node] = stage;
            }
        }
        stage_of
    }
}

impl DrawingNode {
    /// Returns the label, with the number of jobs if there are several.
    pub(crate) fn render_title(&self) -> String {
        if self.jobs > 1 { format!("{} × {}", self.label, self.jobs) } else { self.label.clone() }
    }
}

fn tone_of_counts(counts: &StatusCounts) -> StatusTone {
    match () {
        () if counts.unsuccessful() + counts.get(JobStatus::PendingFailed) > 0 => StatusTone::Bad,
        () if counts.active() > 0 => StatusTone::Active,
        () if counts.get(JobStatus::Completed) == counts.total() => StatusTone::Good,
        () if counts.get(JobStatus::Ready) > 0 => StatusTone::Plain,
        () => StatusTone::Quiet,
    }
}

fn node_of_group(group: &OutlineGroup) -> DrawingNode {
    DrawingNode {
        label: group.label.clone(),
        jobs: group.jobs,
        detail: render_detail(group),
        tone: StatusTone::Plain,
        is_critical: group.is_critical,
    }
}

fn render_detail(group: &OutlineGroup) -> String {
    let Resources { cpus, memory, gpus, nodes, .. } = group.resources;
    let mut parts = vec![render_count(cpus.max(1), "cpu")];
    if nodes > 1 {
        parts.push(render_count(nodes, "node"));
    }
    if gpus > 0 {
        parts.push(render_count(gpus, "gpu"));
    }
    if memory > Resources::DEFAULT.memory {
        parts.push(memory.to_string());
    }
    if group.resources.runtime.is_some() || group.longest != Resources::ASSUMED_RUNTIME {
        parts.push(format_duration(group.longest));
    }
    if group.is_chain {
        parts.push("one after the other".to_owned());
    }
    parts.join(" · ")
}

fn render_count(n: u32, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::dependency_edges::DependencyEdgesBuilder;
    use windlass_core::reuse::RerunReason;
    use windlass_core::workflow_outline::{OutlineGranularity, OutlineJob, OutlineRequest, outline_workflow};

    /// `prepare`, then three of `solve_{n}`.
    fn sweep() -> WorkflowOutline {
        const NAMES: [&str; 4] = ["prepare", "solve_1", "solve_2", "solve_3"];
        let mut builder = DependencyEdgesBuilder::default();
        for job in 1..4 {
            builder.add_dependencies(job, &[0]);
        }
        let facts = |job: u32| OutlineJob {
            name: NAMES[job as usize],
            entry: (job > 0).then_some(0),
            resources: Resources { cpus: 2, ..Resources::DEFAULT },
            priority: 0,
            measured_runtime: None,
            is_reused: false,
        };
        let edges = builder.finish();
        let (kinds, grain) = (&["solve_{n}"][..], OutlineGranularity::Entries);
        outline_workflow(&OutlineRequest {
            jobs: 4,
            edges: &edges,
            entries: kinds,
            facts: &facts,
            grain,
            capacity: None,
        })
        .unwrap()
    }

    fn boxes(drawing: &GraphDrawing) -> Vec<(String, &str, StatusTone)> {
        drawing.nodes.iter().map(|node| (node.render_title(), node.detail.as_str(), node.tone)).collect()
    }

    #[test]
    fn outline_becomes_boxes_and_links() {
        let drawing = GraphDrawing::from_outline(&sweep());
        let plain = StatusTone::Plain;
        assert_eq!(
            boxes(&drawing),
            [("prepare".into(), "2 cpus", plain), ("solve_{n} × 3".into(), "2 cpus", plain)]
        );
        assert_eq!(drawing.headings, ["stage 1 · 1 job", "stage 2 · 3 jobs"]);
        let link = &drawing.links[0];
        assert_eq!((link.from, link.to, link.label.as_str(), link.is_critical), (0, 1, "all", true));
    }

    #[test]
    fn boxes_show_run_and_reused_jobs() {
        let outline = sweep();
        let mut drawing = GraphDrawing::from_outline(&outline);
        let run = || ReuseDecision::Run(RerunReason::New);
        drawing.show_decisions(&outline, &[ReuseDecision::Reuse, run(), ReuseDecision::Reuse, run()]);
        let expected = [
            ("prepare".into(), "reused", StatusTone::Good),
            ("solve_{n} × 3".into(), "2 run · 1 reused", StatusTone::Active),
        ];
        assert_eq!(boxes(&drawing), expected);
    }

    #[test]
    fn box_color_follows_worst_job_status() {
        use JobStatus::{Blocked, Completed, Failed, Ready, Running};
        let outline = sweep();
        for (solve, detail, tone) in [
            ([Completed; 3], "3 completed", StatusTone::Good),
            ([Completed, Running, Ready], "1 ready · 1 running · 1 completed", StatusTone::Active),
            ([Completed, Running, Failed], "1 running · 1 completed · 1 failed", StatusTone::Bad),
            ([Blocked; 3], "3 blocked", StatusTone::Quiet),
        ] {
            let mut drawing = GraphDrawing::from_outline(&outline);
            drawing.show_statuses(&outline, |job| if job == 0 { Completed } else { solve[job as usize - 1] });
            assert_eq!(boxes(&drawing)[1], ("solve_{n} × 3".into(), detail, tone));
            assert_eq!(drawing.nodes[0].detail, "completed");
        }
    }
}
