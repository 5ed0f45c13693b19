//! The dependency graph of cargo, reduced to what the layer rules need.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::shell;

/// The members of the workspace, and the tree of normal dependencies of all packages.
#[derive(Debug)]
pub(super) struct CrateGraph {
    pub(super) members: Vec<WorkspaceMember>,
    /// By package id: the packages that a package links in its normal build on this platform.
    links: BTreeMap<String, PackageMetadata>,
}

#[derive(Debug)]
pub(super) struct WorkspaceMember {
    pub(super) id: String,
    pub(super) name: String,
    /// Relative to the root of the checkout.
    pub(super) manifest: String,
    /// The dependencies in all sections of its manifest.
    pub(super) uses: Vec<DependencyUse>,
}

#[derive(Debug)]
pub(super) struct DependencyUse {
    pub(super) name: String,
    /// The manifest section, for messages.
    pub(super) section: &'static str,
}

#[derive(Debug)]
struct PackageMetadata {
    name: String,
    below: Vec<String>,
}

impl CrateGraph {
    /// Builds a graph from members and `(id, name, dependency ids)` of all packages.
    pub(super) fn new<'a, S: AsRef<str> + 'a>(
        members: Vec<WorkspaceMember>,
        packages: impl IntoIterator<Item = (String, &'a str, &'a [S])>,
    ) -> CrateGraph {
        let package = |(id, name, below): (String, &str, &[S])| {
            let below = below.iter().map(|id| id.as_ref().to_owned()).collect();
            (id, PackageMetadata { name: name.to_owned(), below })
        };
        CrateGraph { members, links: packages.into_iter().map(package).collect() }
    }

    /// The shortest path of normal dependencies from package `from` to a package called `name`, as names.
    pub(super) fn path_to(&self, from: &str, name: &str) -> Option<Vec<String>> {
        let mut came_from: BTreeMap<&str, Option<&str>> = BTreeMap::from([(from, None)]);
        let mut queue = VecDeque::from([from]);
        while let Some(id) = queue.pop_front() {
            let Some(package) = self.links.get(id) else { continue };
            if id != from && package.name == name {
                return Some(self.names_back_from(id, &came_from));
            }
            for below in &package.below {
                if !came_from.contains_key(below.as_str()) {
                    came_from.insert(below, Some(id));
                    queue.push_back(below);
                }
            }
        }
        None
    }

    fn names_back_from(&self, end: &str, came_from: &BTreeMap<&str, Option<&str>>) -> Vec<String> {
        let steps = std::iter::successors(Some(end), |id| came_from[id]);
        let mut names: Vec<String> = steps.map(|id| self.links[id].name.clone()).collect();
        names.reverse();
        names
    }
}

/// Reads the workspace at `root` with cargo.
pub(super) fn read(root: &Path) -> Result<CrateGraph> {
    let host = host_triple()?;
    let text =
        shell::output(&mut shell::cargo(["metadata", "--format-version", "1", "--filter-platform", &host]))?;
    let metadata: Value = serde_json::from_str(&text).context("cargo metadata printed no JSON")?;
    parse(&metadata, root)
}

/// The platform for cargo, so that it omits dependencies of other platforms.
fn host_triple() -> Result<String> {
    let version = shell::output(std::process::Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("`rustc -vV` names no host")?.to_owned())
}

fn parse(metadata: &Value, root: &Path) -> Result<CrateGraph> {
    let inside: Vec<&str> = list(metadata, "workspace_members")?.iter().filter_map(Value::as_str).collect();
    let packages = list(metadata, "packages")?;
    let mut names = BTreeMap::new();
    let mut members = Vec::new();
    for package in packages {
        let id = text(package, "id")?;
        names.insert(id, text(package, "name")?);
        if inside.contains(&id) {
            members.push(parse_member(package, root)?);
        }
    }
    let mut links = Vec::new();
    for node in list(&metadata["resolve"], "nodes")? {
        let id = text(node, "id")?;
        let name =
            *names.get(id).with_context(|| format!("cargo metadata resolves an unknown package {id}"))?;
        links.push((id.to_owned(), name, normal_dependencies(node)?));
    }
    Ok(CrateGraph::new(members, links.iter().map(|(id, name, below)| (id.clone(), *name, below.as_slice()))))
}

fn parse_member(package: &Value, root: &Path) -> Result<WorkspaceMember> {
    let manifest = Path::new(text(package, "manifest_path")?);
    let parse_use = |dependency: &Value| {
        let section = match dependency["kind"].as_str() {
            Some("dev") => "dev-dependencies",
            Some("build") => "build-dependencies",
            _ => "dependencies",
        };
        Ok(DependencyUse { name: text(dependency, "name")?.to_owned(), section })
    };
    Ok(WorkspaceMember {
        id: text(package, "id")?.to_owned(),
        name: text(package, "name")?.to_owned(),
        manifest: manifest.strip_prefix(root).unwrap_or(manifest).display().to_string(),
        uses: list(package, "dependencies")?.iter().map(parse_use).collect::<Result<_>>()?,
    })
}

/// The ids that a node of the resolve graph links normally; dev and build dependencies are in no binary.
fn normal_dependencies(node: &Value) -> Result<Vec<&str>> {
    let is_normal = |dependency: &&Value| {
        dependency["dep_kinds"]
            .as_array()
            .is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
    };
    list(node, "deps")?.iter().filter(is_normal).map(|dependency| text(dependency, "pkg")).collect()
}

fn list<'a>(value: &'a Value, key: &str) -> Result<&'a Vec<Value>> {
    value[key].as_array().with_context(|| format!("cargo metadata has no list `{key}`"))
}

fn text<'a>(value: &'a Value, key: &str) -> Result<&'a str> {
    value[key].as_str().with_context(|| format!("cargo metadata has no text `{key}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata() -> Value {
        serde_json::json!({
            "workspace_members": ["path#a"],
            "packages": [
                {"id": "path#a", "name": "a", "manifest_path": "/house/crates/a/Cargo.toml", "dependencies": [
                    {"name": "b", "kind": null}, {"name": "c", "kind": "dev"}, {"name": "d", "kind": "build"}]},
                {"id": "reg#b", "name": "b", "manifest_path": "/r/b/Cargo.toml", "dependencies": []},
                {"id": "reg#c", "name": "c", "manifest_path": "/r/c/Cargo.toml", "dependencies": []},
            ],
            "resolve": {"nodes": [
                {"id": "path#a", "deps": [
                    {"pkg": "reg#b", "dep_kinds": [{"kind": null}]},
                    {"pkg": "reg#c", "dep_kinds": [{"kind": "dev"}]}]},
                {"id": "reg#b", "deps": []},
                {"id": "reg#c", "deps": []},
            ]},
        })
    }

    #[test]
    fn members_keep_all_manifest_sections() {
        let graph = parse(&metadata(), Path::new("/house")).unwrap();
        let [member] = graph.members.as_slice() else { panic!("{graph:?}") };
        assert_eq!((member.name.as_str(), member.manifest.as_str()), ("a", "crates/a/Cargo.toml"));
        let sections: Vec<_> = member.uses.iter().map(|used| (used.name.as_str(), used.section)).collect();
        assert_eq!(sections, [("b", "dependencies"), ("c", "dev-dependencies"), ("d", "build-dependencies")]);
    }

    #[test]
    fn dependency_tree_has_only_normal_dependencies() {
        let graph = parse(&metadata(), Path::new("/house")).unwrap();
        assert_eq!(graph.path_to("path#a", "b"), Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(graph.path_to("path#a", "c"), None);
    }

    #[test]
    fn dependency_cycle_terminates() {
        let round: [(String, &str, &[&str]); 2] =
            [("x".to_owned(), "x", &["y"]), ("y".to_owned(), "y", &["x"])];
        assert_eq!(CrateGraph::new(Vec::new(), round).path_to("x", "z"), None);
    }

    #[test]
    fn unexpected_metadata_error_names_field() {
        let error = parse(&serde_json::json!({}), Path::new("/")).unwrap_err().to_string();
        assert!(error.contains("workspace_members"), "{error}");
    }
}
