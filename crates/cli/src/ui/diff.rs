//! The difference between two texts in `diff -u` format, readable by `patch`.

/// Unchanged lines shown around a change.
const CONTEXT_LINES: usize = 3;

/// One line of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiffStep {
    Same,
    Removed,
    Added,
}

/// Empty if the texts are equal.
pub(crate) fn unified_diff(name: &str, old: &str, new: &str) -> Vec<String> {
    let (before, after) = (split_lines(old), split_lines(new));
    let steps = compute_steps(&before, &after);
    let hunks = group_hunks(&steps);
    if hunks.is_empty() {
        return Vec::new();
    }
    let mut shown = vec![format!("--- {name}"), format!("+++ {name}")];
    for hunk in hunks {
        render_hunk(&steps, &hunk, &before, &after, &mut shown);
    }
    shown
}

/// With line breaks, so that a missing one at the end is a difference.
fn split_lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// Myers' algorithm: the minimal removals and additions that turn one text into the other.
fn compute_steps(before: &[&str], after: &[&str]) -> Vec<DiffStep> {
    let (rows, columns) = (before.len(), after.len());
    let reach = rows + columns;
    // How far each diagonal (row - column, shifted by `reach`) got, for each number of edits.
    let mut furthest = vec![0usize; 2 * reach + 2];
    let mut history = Vec::new();
    for edits in 0..=reach {
        history.push(furthest.clone());
        for diagonal in (reach - edits..=reach + edits).step_by(2) {
            let down = diagonal == reach - edits
                || (diagonal != reach + edits && furthest[diagonal - 1] < furthest[diagonal + 1]);
            let mut row = if down { furthest[diagonal + 1] } else { furthest[diagonal - 1] + 1 };
            let mut column = row + reach - diagonal;
            while row < rows && column < columns && before[row] == after[column] {
                (row, column) = (row + 1, column + 1);
            }
            furthest[diagonal] = row;
            if row >= rows && column >= columns {
                return walk_back(&history, reach, rows, columns);
            }
        }
    }
    Vec::new()
}

/// Backtracks from the end to the start along the diagonals.
fn walk_back(history: &[Vec<usize>], reach: usize, mut row: usize, mut column: usize) -> Vec<DiffStep> {
    let mut steps = Vec::new();
    for (edits, furthest) in history.iter().enumerate().rev() {
        let diagonal = row + reach - column;
        let down = edits > 0
            && (diagonal == reach - edits
                || (diagonal != reach + edits && furthest[diagonal - 1] < furthest[diagonal + 1]));
        let (from_row, from_column) = match (edits, down) {
            (0, _) => (0, 0),
            (_, true) => (furthest[diagonal + 1], furthest[diagonal + 1] + reach - diagonal - 1),
            (_, false) => (furthest[diagonal - 1], furthest[diagonal - 1] + reach + 1 - diagonal),
        };
        while row > from_row && column > from_column {
            steps.push(DiffStep::Same);
            (row, column) = (row - 1, column - 1);
        }
        if edits > 0 {
            steps.push(if down { DiffStep::Added } else { DiffStep::Removed });
            (row, column) = (from_row, from_column);
        }
    }
    steps.reverse();
    steps
}

/// Groups of changes that are close to each other.
fn group_hunks(steps: &[DiffStep]) -> Vec<std::ops::Range<usize>> {
    let mut hunks: Vec<std::ops::Range<usize>> = Vec::new();
    for (at, _) in steps.iter().enumerate().filter(|(_, step)| **step != DiffStep::Same) {
        let (start, end) = (at.saturating_sub(CONTEXT_LINES), (at + 1 + CONTEXT_LINES).min(steps.len()));
        match hunks.last_mut() {
            Some(last) if start <= last.end => last.end = end,
            _ => hunks.push(start..end),
        }
    }
    hunks
}

fn render_hunk(
    steps: &[DiffStep],
    hunk: &std::ops::Range<usize>,
    before: &[&str],
    after: &[&str],
    shown: &mut Vec<String>,
) {
    let count = |range: std::ops::Range<usize>, other: DiffStep| {
        steps[range].iter().filter(|step| **step != other).count()
    };
    let (mut row, mut column) =
        (count(0..hunk.start, DiffStep::Added), count(0..hunk.start, DiffStep::Removed));
    let (rows, columns) = (count(hunk.clone(), DiffStep::Added), count(hunk.clone(), DiffStep::Removed));
    let place = |first: usize, length: usize| format!("{},{length}", first + usize::from(length > 0));
    shown.push(format!("@@ -{} +{} @@", place(row, rows), place(column, columns)));
    for step in &steps[hunk.clone()] {
        let (sign, line) = match step {
            DiffStep::Same => (' ', before[row]),
            DiffStep::Removed => ('-', before[row]),
            DiffStep::Added => ('+', after[column]),
        };
        row += usize::from(*step != DiffStep::Added);
        column += usize::from(*step != DiffStep::Removed);
        shown.push(format!("{sign}{}", line.trim_end_matches('\n')));
        if !line.ends_with('\n') {
            shown.push("\\ No newline at end of file".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diff_of_equal_texts_is_empty() {
        assert!(unified_diff("a", "x\ny\n", "x\ny\n").is_empty());
        assert!(unified_diff("a", "", "").is_empty());
    }

    #[test]
    fn diff_shows_changed_line_with_context() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let shown = unified_diff("spec.yaml", old, &old.replace("5\n", "five\nand\n"));
        assert_eq!(
            shown,
            [
                "--- spec.yaml",
                "+++ spec.yaml",
                "@@ -2,7 +2,8 @@",
                " 2",
                " 3",
                " 4",
                "-5",
                "+five",
                "+and",
                " 6",
                " 7",
                " 8"
            ]
        );
    }

    #[test]
    fn distant_changes_are_separate_hunks() {
        let old = (0..40).map(|n: u32| n.to_string() + "\n").collect::<String>();
        let new = old.replace("\n3\n", "\n").replace("\n30\n", "\n30\nmore\n");
        let shown = unified_diff("a", &old, &new);
        let hunks: Vec<&String> = shown.iter().filter(|line| line.starts_with("@@")).collect();
        assert_eq!(hunks, ["@@ -1,7 +1,6 @@", "@@ -29,6 +28,7 @@"]);
    }

    #[test]
    fn missing_final_newline_is_a_difference() {
        let shown = unified_diff("a", "x", "x\n");
        assert_eq!(shown[2..], ["@@ -1,1 +1,1 @@", "-x", "\\ No newline at end of file", "+x"]);
        assert_eq!(unified_diff("a", "", "x\n")[2..], ["@@ -0,0 +1,1 @@", "+x"]);
    }

    #[test]
    fn diff_steps_transform_old_text_into_new() {
        let texts = ["", "a\n", "a\nb\nc\n", "c\nb\na\n", "b\na\nb\na\nc\n", "x\ny\nz\na\n"];
        for (old, new) in texts.iter().flat_map(|old| texts.iter().map(move |new| (*old, *new))) {
            let (before, after) = (split_lines(old), split_lines(new));
            let (mut row, mut column) = (0, 0);
            for step in compute_steps(&before, &after) {
                match step {
                    DiffStep::Same => assert_eq!(before[row], after[column]),
                    DiffStep::Removed | DiffStep::Added => {}
                }
                row += usize::from(step != DiffStep::Added);
                column += usize::from(step != DiffStep::Removed);
            }
            assert_eq!((row, column), (before.len(), after.len()), "{old:?} -> {new:?}");
        }
    }
}
