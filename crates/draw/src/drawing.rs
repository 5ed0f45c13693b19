//! What is drawn: boxes in stages, and links between them.

use windlass_core::outline::{Group, LinkShape, Outline};
use windlass_types::{Resources, format_duration};

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
