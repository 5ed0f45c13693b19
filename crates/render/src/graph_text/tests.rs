//! Tests of the printed pictures, and that none is wider than the terminal.

use super::*;
use crate::drawing::{DrawingLink, StatusTone};
use proptest::prelude::*;

fn drawing(stages: &[&[(&str, u32)]], links: &[(usize, usize)]) -> GraphDrawing {
    let mut drawing = GraphDrawing::default();
    for (number, stage) in stages.iter().enumerate() {
        let first = drawing.nodes.len();
        drawing.nodes.extend(stage.iter().map(|&(label, jobs)| DrawingNode {
            label: label.to_owned(),
            jobs,
            detail: "1 cpu · 10m".to_owned(),
            tone: StatusTone::Plain,
            is_critical: false,
        }));
        drawing.stages.push((first..drawing.nodes.len()).collect());
        drawing.headings.push(format!("stage {}", number + 1));
    }
    let link =
        |&(from, to): &(usize, usize)| DrawingLink { from, to, label: String::new(), is_critical: false };
    drawing.links = links.iter().map(link).collect();
    drawing
}

#[test]
fn sweep_renders_as_straight_line() {
    let mut sweep = drawing(&[&[("prepare", 1)], &[("solve_{nu}", 12)], &[("plot", 1)]], &[(0, 1), (1, 2)]);
    sweep.nodes[1].is_critical = true;
    let expected = "
  ┌─────────────┐
  │ prepare     │
  │ 1 cpu · 10m │
  └──────┬──────┘
         ▼
┏━━━━━━━━━━━━━━━━━┓
┃ solve_{nu} × 12 ┃
┃ 1 cpu · 10m     ┃
┗━━━━━━━━┯━━━━━━━━┛
         ▼
  ┌─────────────┐
  │ plot        │
  │ 1 cpu · 10m │
  └─────────────┘
";
    assert_eq!(format!("\n{}", render_text(&sweep, 80)), expected);
}

#[test]
fn graph_wider_than_terminal_renders_as_list() {
    let mut fork = drawing(&[&[("split", 1)], &[("left", 1), ("right", 40)]], &[(0, 1), (0, 2)]);
    fork.links[1].label = "all".to_owned();
    fork.nodes[0].is_critical = true;
    let expected = "stage 1\n * split  1 cpu · 10m\nstage 2\n   left  1 cpu · 10m  ← split\n   right × 40  1 cpu · 10m  ←…\n";
    assert_eq!(render_text(&fork, 30), expected);
    assert!(render_text(&fork, 80).contains('▼'));
}

#[test]
fn control_characters_in_names_are_removed() {
    let evil = drawing(&[&[("a\u{1b}[31mb\nc", 1)]], &[]);
    for width in [10, 80] {
        let drawn = render_text(&evil, width);
        assert!(!drawn.contains('\u{1b}'), "{drawn}");
    }
}

#[test]
fn list_of_many_stages_is_shortened() {
    let stages: Vec<[(&str, u32); 1]> = vec![[("step", 1)]; 1000];
    let stages: Vec<&[(&str, u32)]> = stages.iter().map(|stage| &stage[..]).collect();
    let listed = render_text(&drawing(&stages, &[]), 80);
    assert!(listed.contains("⋮ 800 more stages"), "{listed}");
    assert!(listed.lines().count() < 2 * MAX_STAGES + 2);
    assert!(listed.contains("stage 1000\n"));
}

proptest! {
    #[test]
    fn lines_fit_terminal_width(
        sizes in proptest::collection::vec(1usize..5, 1..6),
        raw in proptest::collection::vec((0usize..20, 0usize..20), 0..25),
        width in 30usize..160,
    ) {
        let stages: Vec<Vec<(&str, u32)>> = sizes.iter().map(|&n| vec![("some_名前_{x}", 3); n]).collect();
        let stages: Vec<&[(&str, u32)]> = stages.iter().map(Vec::as_slice).collect();
        let count: usize = sizes.iter().sum();
        let links: Vec<(usize, usize)> = raw.iter().map(|(a, b)| (a % count, b % count)).collect();
        let drawing = drawing(&stages, &links);
        let drawn = render_text(&drawing, width);
        prop_assert!(drawn.lines().all(|line| line.width() <= width), "{}", drawn);
        prop_assert_eq!(drawn.matches("× 3").count(), count, "every box is present: {}", drawn);
    }
}
