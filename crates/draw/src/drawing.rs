//! What is drawn: boxes in stages, and links between them.

use windlass_core::outline::{Group, LinkShape, Outline};
use windlass_core::reuse::Decision;
use windlass_types::{JobStatus, Resources, StatusCounts, format_duration};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drawing {
    /// Nodes by stage, as indices into `nodes`; every node is in one stage.
    pub stages: Vec<Vec<usize>>,
    /// What stands above a stage, one per stage.
    pub headings: Vec<String>,
    pub nodes: Vec<Node>,
    pub links: Vec<Link>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    pub label: String,
    /// How many jobs it stands for.
    pub jobs: u32,
    /// A smaller line under the label; may be empty.
    pub detail: String,
    pub tone: Tone,
    /// On the critical path.
    pub is_critical: bool,
}

/// What a box or a bar says by its colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    #[default]
    Plain,
    /// Will run, or runs.
    Active,
    /// Done, or reused.
    Good,
    Bad,
    /// Waits, or is left out.
    Quiet,
}

impl Tone {
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
pub struct Link {
    pub from: usize,
    pub to: usize,
    /// May be empty.
    pub label: String,
    /// The critical path runs along it.
    pub is_critical: bool,
}

impl Drawing {
    /// The boxes of an outline, with what they ask for. The caller may then change details and tones.
    pub fn of(outline: &Outline) -> Self {
        let stages = outline.stages.iter().map(|stage| stage.groups.iter().map(|&g| g as usize).collect());
        let heading = |stage: &windlass_core::outline::Stage| {
            let number = match stage.last - stage.first {
                0 => format!("stage {}", stage.first),
                _ => format!("stages {}–{}", stage.first, stage.last),
            };
            format!("{number} · {}", count(stage.jobs, "job"))
        };
        let link = |link: &windlass_core::outline::Link| {
            let (from, to) = (link.from as usize, link.to as usize);
            let several = outline.groups[from].jobs > 1 || outline.groups[to].jobs > 1;
            let label = match link.shape {
                _ if !several => "",
                LinkShape::All => "all",
                LinkShape::OneToOne => "1:1",
                LinkShape::Some => "some",
            };
            Link { from, to, label: label.to_owned(), is_critical: link.is_critical }
        };
        Self {
            stages: stages.collect(),
            headings: outline.stages.iter().map(heading).collect(),
            nodes: outline.groups.iter().map(node).collect(),
            links: outline.links.iter().map(link).collect(),
        }
    }

    /// Says in each box how many of its jobs run and how many are reused. For a drawing of the same outline.
    pub fn show_decisions(&mut self, outline: &Outline, decisions: &[Decision]) {
        let mut runs = vec![0u32; self.nodes.len()];
        for (decision, &group) in decisions.iter().zip(&outline.group_of) {
            runs[group as usize] += u32::from(decision.runs());
        }
        for (node, runs) in self.nodes.iter_mut().zip(runs) {
            let reused = node.jobs - runs.min(node.jobs);
            (node.tone, node.detail) = match (runs, reused) {
                (0, _) => (Tone::Good, "reused".to_owned()),
                (_, 0) => {
                    (Tone::Active, if node.jobs == 1 { "runs".to_owned() } else { "all run".to_owned() })
                }
                (runs, reused) => (Tone::Active, format!("{runs} run · {reused} reused")),
            };
        }
    }

    /// Colours each box by where its jobs stand, the most pressing first, and counts them. For a drawing of the same
    /// outline.
    pub fn show_statuses(&mut self, outline: &Outline, status: impl Fn(u32) -> JobStatus) {
        let mut counts = vec![StatusCounts::default(); self.nodes.len()];
        for (job, &group) in (0u32..).zip(&outline.group_of) {
            counts[group as usize].add(status(job), 1);
        }
        for (node, counts) in self.nodes.iter_mut().zip(counts) {
            let present = || counts.iter().filter(|(_, n)| *n > 0);
            node.tone = tone(&counts);
            node.detail = match node.jobs {
                1 => present().map(|(status, _)| status.to_string()).collect(),
                _ => present().map(|(status, n)| format!("{n} {status}")).collect::<Vec<_>>().join(" · "),
            };
        }
    }

    /// The stage that each node is in.
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

impl Node {
    /// The label with the number of jobs, if there are several.
    pub(crate) fn title(&self) -> String {
        if self.jobs > 1 { format!("{} × {}", self.label, self.jobs) } else { self.label.clone() }
    }
}

fn tone(counts: &StatusCounts) -> Tone {
    match () {
        () if counts.unsuccessful() + counts.get(JobStatus::PendingFailed) > 0 => Tone::Bad,
        () if counts.active() > 0 => Tone::Active,
        () if counts.get(JobStatus::Completed) == counts.total() => Tone::Good,
        () if counts.get(JobStatus::Ready) > 0 => Tone::Plain,
        () => Tone::Quiet,
    }
}

fn node(group: &Group) -> Node {
    Node {
        label: group.label.clone(),
        jobs: group.jobs,
        detail: detail(group),
        tone: Tone::Plain,
        is_critical: group.is_critical,
    }
}

fn detail(group: &Group) -> String {
    let Resources { cpus, memory, gpus, nodes, .. } = group.resources;
    let mut parts = vec![count(cpus.max(1), "cpu")];
    if nodes > 1 {
        parts.push(count(nodes, "node"));
    }
    if gpus > 0 {
        parts.push(count(gpus, "gpu"));
    }
    if memory > Resources::DEFAULT.memory {
        parts.push(memory.to_string());
    }
    if group.resources.runtime.is_some() || group.longest != Resources::UNSAID_RUNTIME {
        parts.push(format_duration(group.longest));
    }
    if group.is_chain {
        parts.push("one after the other".to_owned());
    }
    parts.join(" · ")
}

fn count(n: u32, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_core::edges::EdgesBuilder;
    use windlass_core::outline::{Facts, Grain, Request, outline};
    use windlass_core::reuse::Reason;

    /// `prepare`, then three of `solve_{n}`.
    fn sweep() -> Outline {
        const NAMES: [&str; 4] = ["prepare", "solve_1", "solve_2", "solve_3"];
        let mut builder = EdgesBuilder::default();
        for job in 1..4 {
            builder.depend(job, &[0]);
        }
        let facts = |job: u32| Facts {
            name: NAMES[job as usize],
            kind: (job > 0).then_some(0),
            resources: Resources { cpus: 2, ..Resources::DEFAULT },
            priority: 0,
            measured: None,
            is_reused: false,
        };
        let edges = builder.finish();
        let (kinds, grain) = (&["solve_{n}"][..], Grain::Kinds);
        outline(&Request { jobs: 4, edges: &edges, kinds, facts: &facts, grain, capacity: None }).unwrap()
    }

    fn boxes(drawing: &Drawing) -> Vec<(String, &str, Tone)> {
        drawing.nodes.iter().map(|node| (node.title(), node.detail.as_str(), node.tone)).collect()
    }

    #[test]
    fn an_outline_becomes_boxes_and_links() {
        let drawing = Drawing::of(&sweep());
        let plain = Tone::Plain;
        assert_eq!(
            boxes(&drawing),
            [("prepare".into(), "2 cpus", plain), ("solve_{n} × 3".into(), "2 cpus", plain)]
        );
        assert_eq!(drawing.headings, ["stage 1 · 1 job", "stage 2 · 3 jobs"]);
        let link = &drawing.links[0];
        assert_eq!((link.from, link.to, link.label.as_str(), link.is_critical), (0, 1, "all", true));
    }

    #[test]
    fn boxes_say_what_runs_and_what_is_reused() {
        let outline = sweep();
        let mut drawing = Drawing::of(&outline);
        let run = || Decision::Run(Reason::New);
        drawing.show_decisions(&outline, &[Decision::Reuse, run(), Decision::Reuse, run()]);
        let expected = [
            ("prepare".into(), "reused", Tone::Good),
            ("solve_{n} × 3".into(), "2 run · 1 reused", Tone::Active),
        ];
        assert_eq!(boxes(&drawing), expected);
    }

    #[test]
    fn boxes_are_coloured_by_the_worst_of_their_jobs() {
        use JobStatus::{Blocked, Completed, Failed, Ready, Running};
        let outline = sweep();
        for (solve, detail, tone) in [
            ([Completed; 3], "3 completed", Tone::Good),
            ([Completed, Running, Ready], "1 ready · 1 running · 1 completed", Tone::Active),
            ([Completed, Running, Failed], "1 running · 1 completed · 1 failed", Tone::Bad),
            ([Blocked; 3], "3 blocked", Tone::Quiet),
        ] {
            let mut drawing = Drawing::of(&outline);
            drawing.show_statuses(&outline, |job| if job == 0 { Completed } else { solve[job as usize - 1] });
            assert_eq!(boxes(&drawing)[1], ("solve_{n} × 3".into(), detail, tone));
            assert_eq!(drawing.nodes[0].detail, "completed");
        }
    }
}
