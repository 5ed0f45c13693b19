//! `cargo xtask layers`: dependencies point downwards, and the pure crates stay pure.
//!
//! The rules are the tables below. The check is a function of a graph ([`graph::CrateGraph`]), so that tests can use
//! artificial graphs; [`graph`] reads the real one from cargo, and [`source`] looks for `unsafe`.

mod graph;
pub(crate) mod source;

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Result, bail};

use self::graph::{CrateGraph, WorkspaceMember};

const HELP: &str = "\
cargo xtask layers: checks the dependencies between crates

  - a workspace crate uses only the crates that the table in xtask/src/layers/mod.rs allows
  - the pure crates (types, spec, core, render, sim) have no runtime, database or system calls in their dependency tree
  - a crate with a single owner (rusqlite, clap) is used by that owner alone
  - `unsafe` occurs in crates/process and nowhere else
";

/// The layer of a crate and the workspace crates that it may use.
struct CrateRule {
    name: &'static str,
    layer: u8,
    may_use: &'static [&'static str],
}

/// The layers, lowest first. Each crate has a line here; crates of one layer do not depend on each other.
const LAYERS: &[CrateRule] = &[
    CrateRule { name: "windlass-types", layer: 0, may_use: &[] },
    // The one exception: spec is in the same layer as the types that it uses.
    CrateRule { name: "windlass-spec", layer: 0, may_use: &["windlass-types"] },
    CrateRule { name: "windlass-core", layer: 1, may_use: &["windlass-types", "windlass-spec"] },
    // A simulation for the decisions of core; no crate of the product uses it.
    CrateRule { name: "windlass-sim", layer: 2, may_use: &["windlass-types", "windlass-core"] },
    CrateRule { name: "windlass-render", layer: 2, may_use: &["windlass-types", "windlass-core"] },
    CrateRule { name: "windlass-store", layer: 2, may_use: &["windlass-types", "windlass-core"] },
    CrateRule { name: "windlass-process", layer: 2, may_use: &["windlass-types"] },
    CrateRule {
        name: "windlass-worker",
        layer: 3,
        may_use: &["windlass-types", "windlass-process", "windlass-core"],
    },
    CrateRule {
        name: "windlass-scheduler",
        layer: 3,
        may_use: &["windlass-types", "windlass-core", "windlass-store"],
    },
    CrateRule { name: "windlass-api", layer: 1, may_use: &["windlass-types"] },
    CrateRule {
        name: "windlass-auth",
        layer: 2,
        may_use: &["windlass-types", "windlass-api", "windlass-core"],
    },
    CrateRule {
        name: "windlass-client",
        layer: 3,
        may_use: &["windlass-types", "windlass-core", "windlass-store", "windlass-api"],
    },
    CrateRule {
        name: "windlass-insight",
        layer: 3,
        may_use: &["windlass-types", "windlass-spec", "windlass-core", "windlass-store"],
    },
    CrateRule {
        name: "windlass-mcp",
        layer: 4,
        may_use: &["windlass-types", "windlass-spec", "windlass-core", "windlass-store", "windlass-insight"],
    },
    CrateRule {
        name: "windlass-payload",
        layer: 3,
        may_use: &["windlass-types", "windlass-process", "windlass-core"],
    },
    CrateRule {
        name: "windlass-htcondor",
        layer: 4,
        may_use: &[
            "windlass-types",
            "windlass-spec",
            "windlass-core",
            "windlass-process",
            "windlass-payload",
        ],
    },
    CrateRule {
        name: "windlass-requests",
        layer: 5,
        // Its tests run the jobs that it submits.
        may_use: &[
            "windlass-types",
            "windlass-core",
            "windlass-store",
            "windlass-scheduler",
            "windlass-payload",
            "windlass-htcondor",
        ],
    },
    CrateRule {
        name: "windlass-slurm",
        layer: 5,
        may_use: &[
            "windlass-types",
            "windlass-core",
            "windlass-api",
            "windlass-process",
            "windlass-store",
            "windlass-scheduler",
        ],
    },
    CrateRule {
        name: "windlass-agent",
        layer: 4,
        may_use: &[
            "windlass-types",
            "windlass-process",
            "windlass-core",
            "windlass-worker",
            "windlass-api",
            "windlass-client",
        ],
    },
    CrateRule {
        name: "windlass-server",
        layer: 6,
        may_use: &[
            "windlass-types",
            "windlass-core",
            "windlass-store",
            "windlass-scheduler",
            "windlass-api",
            "windlass-auth",
            "windlass-insight",
            "windlass-mcp",
            "windlass-htcondor",
            "windlass-requests",
            "windlass-slurm",
        ],
    },
    CrateRule {
        name: "windlass",
        layer: 7,
        may_use: &[
            "windlass-types",
            "windlass-spec",
            "windlass-core",
            "windlass-render",
            "windlass-store",
            "windlass-process",
            "windlass-worker",
            "windlass-scheduler",
            "windlass-api",
            "windlass-auth",
            "windlass-client",
            "windlass-agent",
            "windlass-insight",
            "windlass-mcp",
            "windlass-htcondor",
            "windlass-payload",
            "windlass-requests",
            "windlass-slurm",
            "windlass-server",
        ],
    },
    // A tool outside the layers: it starts the product as a user does, and links none of its crates.
    CrateRule { name: "xtask", layer: 0, may_use: &[] },
];

/// Crates whose normal dependency tree must contain none of [`IMPURE`].
const PURE: &[&str] =
    &["windlass-types", "windlass-spec", "windlass-core", "windlass-render", "windlass-sim"];

const IMPURE: &[&str] = &["tokio", "rusqlite", "libsqlite3-sys", "libc", "rustix"];

/// An external crate that only one of our crates may name in its manifest.
struct OwnedDependency {
    dependency: &'static str,
    owner: &'static str,
    because: &'static str,
}

const OWNED: &[OwnedDependency] = &[
    OwnedDependency {
        dependency: "rusqlite",
        owner: "windlass-store",
        because: "SQL lives behind the store's use cases",
    },
    OwnedDependency {
        dependency: "tokio-postgres",
        owner: "windlass-store",
        because: "SQL lives behind the store's use cases",
    },
    OwnedDependency {
        dependency: "axum",
        owner: "windlass-server",
        because: "requests are answered in one place",
    },
    OwnedDependency { dependency: "rmcp", owner: "windlass-mcp", because: "it changes often" },
    OwnedDependency { dependency: "clap", owner: "windlass", because: "arguments are parsed at the edge" },
];

/// The only folder whose code may contain `unsafe`.
const UNSAFE_ALLOWED: &str = "crates/process";

pub(crate) fn main(arguments: &[String]) -> Result<()> {
    if arguments.iter().any(|word| word == "--help" || word == "-h") {
        print!("{HELP}");
        return Ok(());
    }
    if let Some(word) = arguments.first() {
        bail!("`layers` takes no arguments, got `{word}`");
    }
    check()
}

/// Checks the real workspace.
pub(crate) fn check() -> Result<()> {
    let root = crate::shell::root();
    let graph = graph::read(&root)?;
    let mut complaints = complaints(&graph);
    complaints.extend(unsafe_complaints(&root)?);
    if complaints.is_empty() {
        println!("layers: {} crates, every dependency points downwards", graph.members.len());
        return Ok(());
    }
    let mut message = format!("{} broken layer rule(s):\n", complaints.len());
    for complaint in &complaints {
        write!(message, "\n  {}", complaint.replace('\n', "\n      "))?;
    }
    message.push_str("\n\nThe rules are the tables at the top of xtask/src/layers/mod.rs.");
    bail!(message)
}

/// All violations of the dependency rules, each with its remedy.
fn complaints(graph: &CrateGraph) -> Vec<String> {
    let mut found = Vec::new();
    for member in &graph.members {
        match LAYERS.iter().find(|rule| rule.name == member.name) {
            Some(rule) => found.extend(forbidden_edges(graph, member, rule)),
            None => found.push(format!(
                "{name} ({manifest}) has no layer\n\
                 add a line for it to LAYERS: its layer, and the crates that it may use",
                name = member.name,
                manifest = member.manifest,
            )),
        }
        found.extend(stolen_dependencies(member));
        if PURE.contains(&member.name.as_str()) {
            found.extend(impurities(graph, member));
        }
    }
    found
}

fn forbidden_edges(graph: &CrateGraph, member: &WorkspaceMember, rule: &CrateRule) -> Vec<String> {
    let inside = |name: &str| graph.members.iter().any(|other| other.name == name);
    let forbidden =
        member.uses.iter().filter(|used| inside(&used.name) && !rule.may_use.contains(&used.name.as_str()));
    forbidden
        .map(|used| {
            format!(
                "{from} -> {to} ({section} of {manifest})\n{relation}\n{remedy}",
                from = member.name,
                to = used.name,
                section = used.section,
                manifest = member.manifest,
                relation = relation(rule, &used.name),
                remedy = remedy(rule),
            )
        })
        .collect()
}

fn relation(rule: &CrateRule, used: &str) -> String {
    let place = LAYERS.iter().find(|other| other.name == used).map(|other| other.layer);
    match place {
        Some(layer) if layer > rule.layer => {
            format!("points upwards, from layer {} to layer {layer}", rule.layer)
        }
        Some(layer) if layer == rule.layer => {
            format!("both are in layer {layer}, and crates of one layer do not depend on each other")
        }
        _ => "is not in the list of what this crate may use".to_owned(),
    }
}

fn remedy(rule: &CrateRule) -> String {
    let allowed = match rule.may_use {
        [] => "no other crate of the workspace".to_owned(),
        names => names.join(", "),
    };
    format!(
        "{name} may use {allowed}. Move the shared part down to a crate that both may use, or the code (or the test) \
         that needs both up to a crate above",
        name = rule.name
    )
}

fn stolen_dependencies(member: &WorkspaceMember) -> Vec<String> {
    let stolen = |owned: &&OwnedDependency| {
        owned.owner != member.name && member.uses.iter().any(|used| used.name == owned.dependency)
    };
    let complain = |owned: &OwnedDependency| {
        format!(
            "{name} -> {dependency} ({manifest})\n\
             only {owner} may depend on {dependency}: {because}. Ask for what you need through {owner}",
            name = member.name,
            manifest = member.manifest,
            dependency = owned.dependency,
            owner = owned.owner,
            because = owned.because,
        )
    };
    OWNED.iter().filter(stolen).map(complain).collect()
}

fn impurities(graph: &CrateGraph, member: &WorkspaceMember) -> Vec<String> {
    let paths = IMPURE.iter().filter_map(|impure| graph.path_to(&member.id, impure));
    paths
        .map(|path| {
            format!(
                "{chain}\n{name} is pure: no I/O, no clock, no runtime below it. Drop the dependency or the feature \
                 that brings it in (`cargo tree -p {name} -e normal -i {impure}`), or move the code up",
                chain = path.join(" -> "),
                name = member.name,
                impure = path.last().expect("a path has an end"),
            )
        })
        .collect()
}

fn unsafe_complaints(root: &Path) -> Result<Vec<String>> {
    let found = source::find_unsafe(root, UNSAFE_ALLOWED)?;
    let complain = |place: source::SourcePlace| {
        format!(
            "{file}:{line} says `unsafe`\n\
             only {UNSAFE_ALLOWED} may. Offer what you need there as a safe function, with a SAFETY comment",
            file = place.file.display(),
            line = place.line,
        )
    };
    Ok(found.into_iter().map(complain).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member with `uses` under `[dependencies]`.
    fn member(name: &str, uses: &[&str]) -> WorkspaceMember {
        let named = |used: &&str| graph::DependencyUse { name: (*used).to_owned(), section: "dependencies" };
        WorkspaceMember {
            id: name.to_owned(),
            name: name.to_owned(),
            manifest: format!("{name}/Cargo.toml"),
            uses: uses.iter().map(named).collect(),
        }
    }

    fn graph(members: Vec<WorkspaceMember>, tree: &[(&str, &[&str])]) -> CrateGraph {
        CrateGraph::new(members, tree.iter().map(|(id, below)| ((*id).to_owned(), *id, *below)))
    }

    fn only_complaint(graph: &CrateGraph) -> String {
        let mut found = complaints(graph);
        assert_eq!(found.len(), 1, "{found:#?}");
        found.remove(0)
    }

    #[test]
    fn layer_table_points_downwards() {
        for rule in LAYERS {
            for used in rule.may_use {
                let other = LAYERS.iter().find(|other| other.name == *used).expect(used);
                let exception = rule.name == "windlass-spec" && *used == "windlass-types";
                assert!(other.layer < rule.layer || exception, "{} -> {used}", rule.name);
            }
        }
    }

    #[test]
    fn allowed_dependencies_pass() {
        let members = LAYERS.iter().map(|rule| member(rule.name, rule.may_use)).collect();
        assert_eq!(complaints(&graph(members, &[])), Vec::<String>::new());
    }

    #[test]
    fn upward_dependency_error_names_crates_and_section() {
        let mut core = member("windlass-core", &["windlass-types", "windlass-store"]);
        core.uses[1].section = "dev-dependencies";
        let members = vec![core, member("windlass-types", &[]), member("windlass-store", &[])];
        let complaint = only_complaint(&graph(members, &[]));
        assert!(complaint.contains("windlass-core -> windlass-store"), "{complaint}");
        assert!(complaint.contains("dev-dependencies"), "{complaint}");
        assert!(complaint.contains("upwards, from layer 1 to layer 2"), "{complaint}");
        assert!(complaint.contains("may use windlass-types, windlass-spec"), "{complaint}");
    }

    #[test]
    fn dependency_within_layer_is_rejected() {
        let members =
            vec![member("windlass-scheduler", &["windlass-worker"]), member("windlass-worker", &[])];
        let complaint = only_complaint(&graph(members, &[]));
        assert!(complaint.contains("both are in layer 3"), "{complaint}");
    }

    #[test]
    fn unlisted_downward_dependency_is_rejected() {
        let members = vec![member("windlass-worker", &["windlass-store"]), member("windlass-store", &[])];
        let complaint = only_complaint(&graph(members, &[]));
        assert!(complaint.contains("not in the list"), "{complaint}");
    }

    #[test]
    fn crate_missing_in_layer_table_is_reported() {
        let complaint = only_complaint(&graph(vec![member("windlass-util", &[])], &[]));
        assert!(complaint.contains("windlass-util") && complaint.contains("LAYERS"), "{complaint}");
    }

    #[test]
    fn owned_dependency_is_allowed_only_in_its_owner() {
        let rightful = vec![member("windlass-store", &["rusqlite"]), member("windlass", &["clap"])];
        assert_eq!(complaints(&graph(rightful, &[])), Vec::<String>::new());

        let complaint = only_complaint(&graph(vec![member("windlass-scheduler", &["rusqlite"])], &[]));
        assert!(complaint.contains("only windlass-store may depend on rusqlite"), "{complaint}");
        let complaint = only_complaint(&graph(vec![member("xtask", &["clap"])], &[]));
        assert!(complaint.contains("only windlass may depend on clap"), "{complaint}");
    }

    #[test]
    fn impure_dependency_is_found_at_any_depth_with_path() {
        let tree: &[(&str, &[&str])] = &[
            ("windlass-core", &["fine", "deep"]),
            ("deep", &["deeper"]),
            ("deeper", &["libc"]),
            ("libc", &[]),
        ];
        let complaint = only_complaint(&graph(vec![member("windlass-core", &["fine", "deep"])], tree));
        assert!(complaint.starts_with("windlass-core -> deep -> deeper -> libc"), "{complaint}");
    }

    #[test]
    fn impure_crates_may_have_impure_dependencies() {
        let tree: &[(&str, &[&str])] = &[("windlass-process", &["libc"]), ("libc", &[])];
        assert_eq!(
            complaints(&graph(vec![member("windlass-process", &["libc"])], tree)),
            Vec::<String>::new()
        );
    }
}
