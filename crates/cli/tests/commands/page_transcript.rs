//! A page of documentation as a script: its blocks in order, their commands, and the comparison of outputs that
//! vary from run to run.

/// A part of a page; all parts together are the page, byte for byte.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PagePart {
    /// Prose, and blocks that are not run.
    Prose(String),
    /// A `console` block.
    Console(Vec<Step>),
    /// A block that is a complete spec, and the file extension of its format.
    Spec { format: String, text: String },
}

/// A `$` line and the output shown for it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) command: String,
    pub(crate) shown: String,
}

const FENCE: &str = "```";
/// Blocks with these labels are complete specs, unless the word `fragment` follows.
const FORMATS: [&str; 5] = ["yaml", "json", "json5", "toml", "kdl"];

/// Splits a page into pieces, or reports the syntax error in it.
pub(crate) fn parse(page: &str) -> Result<Vec<PagePart>, String> {
    let mut pieces = vec![PagePart::Prose(String::new())];
    let mut lines = page.split_inclusive('\n');
    while let Some(line) = lines.next() {
        let Some(label) = line.strip_prefix(FENCE) else {
            prose(&mut pieces).push_str(line);
            continue;
        };
        let body: String = lines.by_ref().take_while(|line| line.trim_end() != FENCE).collect();
        match label.trim_end() {
            "console" => pieces.push(PagePart::Console(steps(&body)?)),
            format if FORMATS.contains(&format) => {
                pieces.push(PagePart::Spec { format: format.to_owned(), text: body });
            }
            "sh" | "bash" | "shell" | "" => {
                let first = body.lines().next().unwrap_or_default();
                return Err(format!(
                    "the block `{first}` must be a `console` block, which is run, or its label must say whose it is"
                ));
            }
            _ => prose(&mut pieces).extend([line, &body, FENCE, "\n"]),
        }
    }
    Ok(pieces)
}

/// The prose at the end, to append to.
fn prose(pieces: &mut Vec<PagePart>) -> &mut String {
    if !matches!(pieces.last(), Some(PagePart::Prose(_))) {
        pieces.push(PagePart::Prose(String::new()));
    }
    match pieces.last_mut() {
        Some(PagePart::Prose(text)) => text,
        _ => unreachable!("it was just put there"),
    }
}

fn steps(block: &str) -> Result<Vec<Step>, String> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = block.lines();
    while let Some(line) = lines.next() {
        if let Some(command) = line.strip_prefix("$ ") {
            let mut command = command.to_owned();
            while command.ends_with('\\') {
                command.push('\n');
                command.push_str(lines.next().ok_or_else(|| format!("`{command}` goes on nowhere"))?);
            }
            steps.push(Step { command, shown: String::new() });
        } else {
            let step = steps.last_mut().ok_or_else(|| format!("`{line}` comes before the first `$`"))?;
            step.shown.push_str(line);
            step.shown.push('\n');
        }
    }
    Ok(steps)
}

/// Joins the pieces into a page.
pub(crate) fn render(pieces: &[PagePart]) -> String {
    pieces.iter().map(written).collect()
}

fn written(piece: &PagePart) -> String {
    match piece {
        PagePart::Prose(text) => text.clone(),
        PagePart::Console(steps) => {
            let steps = steps.iter().map(|step| format!("$ {}\n{}", step.command, step.shown));
            format!("{FENCE}console\n{}{FENCE}\n", steps.collect::<String>())
        }
        PagePart::Spec { format, text } => format!("{FENCE}{format}\n{text}{FENCE}\n"),
    }
}

/// The output without the parts that vary. Concurrent jobs change the order of lines; the width of columns
/// depends on their contents, so runs of spaces count as one; times, sizes and dates are all `#`.
pub(crate) fn normal(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(normal_line).collect();
    lines.sort();
    lines
}

fn normal_line(line: &str) -> String {
    // The critical path depends on the durations of jobs.
    let line = if line.trim_start().starts_with("critical path") { "critical path" } else { line };
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut kept = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let before = if at == 0 { "" } else { words[at - 1] };
        let next = words.get(at + 1).copied().unwrap_or_default();
        let is_size = is_number(words[at]) && is_size_unit(bare(next));
        // In tables, the number of CPUs used precedes the time used.
        let is_cpus = is_number(words[at]) && words[at].contains('.') && varies(bare(next));
        let differs = is_size || is_cpus || varies(bare(words[at])) || is_measure(before);
        kept.push(if differs { "#".to_owned() } else { without_width(words[at]) });
        at += if is_size { 2 } else { 1 };
    }
    kept.join(" ")
}

/// Shortens the edges of boxes and bars to one character, because their length depends on the contents.
fn without_width(word: &str) -> String {
    let mut kept: Vec<char> = word.chars().collect();
    kept.dedup_by(|a, b| a == b && matches!(a, '━' | '─'));
    kept.into_iter().collect()
}

/// Strips the punctuation of sentences and JSON around a value.
fn bare(word: &str) -> &str {
    word.trim_matches(|c: char| ",;:()[]\"'".contains(c))
}

fn is_number(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit()) && word.chars().all(|c| c.is_ascii_digit() || c == '.')
}

fn is_size_unit(word: &str) -> bool {
    matches!(word, "B" | "KiB" | "MiB" | "GiB")
}

/// Whether the word before a value is a JSON field with a measured value, or `uid`.
fn is_measure(before: &str) -> bool {
    let measures = ["_seconds\":", "_bytes\":", "_percent\":", "\"pid\":", "\"uuid\":"];
    before == "uid" || measures.iter().any(|end| before.ends_with(end))
}

/// Whether the word is a duration, percentage, date or time of day, or the dash for a duration too short to
/// measure.
fn varies(word: &str) -> bool {
    if word == "-" {
        return true;
    }
    let Some(rest) = word.strip_prefix(|c: char| c.is_ascii_digit()) else { return false };
    let unit =
        rest.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | ':' | 'T' | '+'));
    let is_date = unit.is_empty() && rest.contains(['-', ':']);
    matches!(unit, "ms" | "s" | "m" | "h" | "Z" | "%") || is_date
}

#[test]
fn transcript_page_round_trips() {
    let page = "# Title\n```console\n$ cat a \\\n  b\nx\n$ true\n```\nand\n```text other\n$ no\n```\n```yaml\nname: a\n```\nend";
    let pieces = parse(page).unwrap();
    assert_eq!(render(&pieces), page);
    let PagePart::Console(steps) = &pieces[1] else { panic!("{pieces:?}") };
    assert_eq!((steps[0].command.as_str(), steps[0].shown.as_str()), ("cat a \\\n  b", "x\n"));
    assert_eq!(pieces[3], PagePart::Spec { format: "yaml".to_owned(), text: "name: a\n".to_owned() });
    parse("```sh\nrm -r x\n```\n").unwrap_err();
    parse("```console\nno prompt\n```\n").unwrap_err();
}

#[test]
fn transcript_comparison_ignores_times_and_sizes() {
    assert_eq!(normal("done  a  6ms\nx"), normal("x\ndone b  7s".replace('b', "a").as_str()));
    assert_eq!(
        normal("took 1.5 MiB, at 2026-11-15 12:43:36Z"),
        normal("took 12 KiB, at 2025-01-01 00:00:00Z")
    );
    assert_eq!(normal("\"wall_seconds\": 0.25,"), normal("\"wall_seconds\": 3,"));
    assert_eq!(normal("┃ 1 cpu · 9ms ┃\n┗━━━┯━━━┛"), normal("┃ 1 cpu · 10ms ┃\n┗━━━━┯━━━┛"));
    assert_ne!(normal("exit code 7"), normal("exit code 8"));
    assert_eq!(normal("1  0.3  10m"), normal("1  -  10m"));
    assert_ne!(normal("0.5 1"), normal("0.6 1"));
}
