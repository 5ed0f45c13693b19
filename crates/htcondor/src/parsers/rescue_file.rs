//! Parser of rescue files (`NAME.dag.rescue001`), which list the nodes that a DAG need not run again.
//!
//! They are read together with the DAG file itself, and only say which nodes are done and how often others may
//! be retried.

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RescueFile {
    pub total: Option<u64>,
    pub done: Vec<String>,
    /// Failed nodes. Nodes that were stopped with the DAG are not included.
    pub failed: Vec<String>,
}

/// Node names end at a space or at the end of their line, so only complete lines count.
pub fn parse_rescue_file(file: &[u8]) -> RescueFile {
    let mut rescue = RescueFile::default();
    let mut names_follow = false;
    for line in super::complete_lines(file) {
        let Ok(line) = str::from_utf8(line) else { continue };
        if let Some(node) = line.strip_prefix("DONE ") {
            rescue.done.extend(node.split_whitespace().next().map(str::to_owned));
        } else if let Some(total) = line.strip_prefix("# Total number of Nodes: ") {
            rescue.total = super::parse_digits(total.trim());
        } else if line.starts_with("# Nodes that failed: ") {
            names_follow = true;
            continue;
        } else if names_follow && let Some(names) = line.strip_prefix("#   ") {
            // Each name has a comma after it; the last word is a mark.
            rescue.failed.extend(names.split(',').filter(|name| !name.starts_with('<')).map(str::to_owned));
        }
        names_follow = false;
    }
    rescue.failed.retain(|name| !name.is_empty());
    rescue
}

/// Parses the number in the name of a rescue file of `dag`: 12 for `workflow.dag.rescue012`.
pub fn rescue_number(dag: &str, file: &str) -> Option<u32> {
    let digits = file.strip_prefix(dag)?.strip_prefix(".rescue")?;
    (digits.len() >= 3).then(|| super::parse_digits(digits)?.try_into().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn done_and_failed_nodes_are_parsed() {
        let outer = parse_rescue_file(include_bytes!("../../tests/data/workflow.dag.rescue001.failed"));
        assert_eq!(outer.total, Some(3));
        assert_eq!(outer.done, ["mg_000000"]);
        assert_eq!(outer.failed, ["mg_000001", "mg_000002"]);
        let inner = parse_rescue_file(include_bytes!("../../tests/data/group.dag.rescue001.unless42"));
        assert_eq!(inner.done, ["landing", "proc_000000", "proc_000001"]);
        assert_eq!(inner.failed, ["proc_000002"]);
        let removed = parse_rescue_file(include_bytes!("../../tests/data/group.dag.rescue001.removed"));
        assert_eq!((removed.done.len(), removed.failed.len()), (3, 0));
    }

    #[test]
    fn truncated_name_is_ignored() {
        assert_eq!(parse_rescue_file(b"DONE mg_00000").done, Vec::<String>::new());
    }

    #[test]
    fn rescue_number_is_parsed_from_the_file_name() {
        assert_eq!(rescue_number("workflow.dag", "workflow.dag.rescue012"), Some(12));
        for other in ["workflow.dag.rescue001.old", "workflow.dag.rescue", "workflow.dag", "x.dag.rescue001"]
        {
            assert_eq!(rescue_number("workflow.dag", other), None, "{other}");
        }
    }
}
