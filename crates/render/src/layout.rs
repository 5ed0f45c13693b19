//! A layered layout, used for characters and for pixels.
//!
//! Every stage is a layer. A link over several stages gets a waypoint in each layer between, so that it is routed
//! around the boxes. Layers are then sorted to reduce crossings, and positioned so that links are straight where
//! possible.

use crate::drawing::GraphDrawing;

/// A position in a layer: a node, or a waypoint of a long link.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LayoutSlot {
    pub(crate) node: Option<usize>,
    pub(crate) size: f64,
    /// The center, perpendicular to the direction of the layers.
    pub(crate) centre: f64,
}

#[derive(Clone, Debug)]
pub(crate) struct GraphLayout {
    pub(crate) layers: Vec<Vec<LayoutSlot>>,
    /// For each link of the drawing its slots, one per layer, starting with the layer where it begins.
    /// Empty for a link that does not lead to a later stage.
    pub(crate) routes: Vec<LinkRoute>,
    /// The extent from the start of the first slot to the end of the last one in the widest layer.
    pub(crate) extent: f64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LinkRoute {
    pub(crate) first_layer: usize,
    pub(crate) slots: Vec<usize>,
}

impl LinkRoute {
    /// Returns `(layer, slot, slot in the next layer)` for each step.
    pub(crate) fn steps(&self) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
        let steps = self.slots.windows(2).enumerate();
        steps.map(|(i, pair)| (self.first_layer + i, pair[0], pair[1]))
    }
}

const SORT_SWEEPS: usize = 12;
const PLACE_SWEEPS: usize = 16;

/// Computes the layout of a drawing. `size` is the size of a node across the layers, `waypoint` that of a passing
/// link, `gap` the distance between them.
pub(crate) fn compute_layout(
    drawing: &GraphDrawing,
    size: impl Fn(usize) -> f64,
    waypoint: f64,
    gap: f64,
) -> GraphLayout {
    let mut net = LayoutNetwork::new(drawing, size, waypoint);
    for sweep in 0..SORT_SWEEPS {
        net.sort_layer_order(sweep % 2 == 0);
    }
    net.place_slots(gap);
    net.finish(gap)
}

struct LayoutNetwork {
    slots: Vec<LayoutSlot>,
    /// The slots by layer, in order.
    layers: Vec<Vec<usize>>,
    predecessors: Vec<Vec<usize>>,
    successors: Vec<Vec<usize>>,
    routes: Vec<(usize, Vec<usize>)>,
}

impl LayoutNetwork {
    fn new(drawing: &GraphDrawing, size: impl Fn(usize) -> f64, waypoint: f64) -> Self {
        let nodes = drawing.nodes.len();
        let slot = |node: usize| LayoutSlot { node: Some(node), size: size(node), centre: 0.0 };
        let mut net = Self {
            slots: (0..nodes).map(slot).collect(),
            layers: drawing.stages.clone(),
            predecessors: vec![Vec::new(); nodes],
            successors: vec![Vec::new(); nodes],
            routes: Vec::with_capacity(drawing.links.len()),
        };
        let stage_of = drawing.stage_of();
        for link in &drawing.links {
            let (first, last) = (stage_of[link.from], stage_of[link.to]);
            if first >= last {
                net.routes.push((first, Vec::new()));
                continue;
            }
            let mut way = vec![link.from];
            for layer in first + 1..last {
                let passing = net.add_waypoint(layer, waypoint);
                way.push(passing);
            }
            way.push(link.to);
            for pair in way.windows(2) {
                net.successors[pair[0]].push(pair[1]);
                net.predecessors[pair[1]].push(pair[0]);
            }
            net.routes.push((first, way));
        }
        net
    }

    fn add_waypoint(&mut self, layer: usize, size: f64) -> usize {
        let slot = self.slots.len();
        self.slots.push(LayoutSlot { node: None, size, centre: 0.0 });
        self.layers[layer].push(slot);
        self.predecessors.push(Vec::new());
        self.successors.push(Vec::new());
        slot
    }

    /// Sorts each layer by the mean position of the linked slots in the previous or next layer.
    fn sort_layer_order(&mut self, forwards: bool) {
        let count = self.layers.len();
        let mut place = vec![0.0; self.slots.len()];
        for layer in &self.layers {
            for (i, &slot) in layer.iter().enumerate() {
                place[slot] = (i as f64 + 0.5) / layer.len() as f64;
            }
        }
        for step in 0..count {
            let layer = if forwards { step } else { count - 1 - step };
            let neighbours = if forwards { &self.predecessors } else { &self.successors };
            let preferred_position =
                |slot: usize| mean(neighbours[slot].iter().map(|&n| place[n])).unwrap_or(place[slot]);
            let mut sorted: Vec<(f64, usize)> =
                self.layers[layer].iter().map(|&slot| (preferred_position(slot), slot)).collect();
            sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
            let length = sorted.len() as f64;
            for (i, &(_, slot)) in sorted.iter().enumerate() {
                place[slot] = (i as f64 + 0.5) / length;
            }
            self.layers[layer] = sorted.into_iter().map(|(_, slot)| slot).collect();
        }
    }

    /// Moves slots towards their linked slots, as far as their neighbors in the layer allow.
    fn place_slots(&mut self, gap: f64) {
        for layer in 0..self.layers.len() {
            let all_at_zero = vec![0.0; self.layers[layer].len()];
            self.apply_positions(layer, &all_at_zero, gap);
        }
        for sweep in 0..PLACE_SWEEPS {
            let count = self.layers.len();
            for step in 0..count {
                let layer = if sweep % 2 == 0 { step } else { count - 1 - step };
                let preferred: Vec<f64> =
                    self.layers[layer].iter().map(|&slot| self.preferred_position(slot, sweep)).collect();
                self.apply_positions(layer, &preferred, gap);
            }
        }
    }

    /// Returns the center of the linked slots: on one side at first, on both sides in the last rounds.
    fn preferred_position(&self, slot: usize, sweep: usize) -> f64 {
        let last = sweep + 2 >= PLACE_SWEEPS;
        let (near, far) = match sweep % 2 {
            0 => (&self.predecessors[slot], &self.successors[slot]),
            _ => (&self.successors[slot], &self.predecessors[slot]),
        };
        let sides = near.iter().chain(far.iter().filter(|_| last || near.is_empty()));
        let pulls = sides.map(|&n| (self.slots[n].centre, self.link_weight(slot, n)));
        weighted_mean(pulls).unwrap_or(self.slots[slot].centre)
    }

    /// Returns the weight for aligning two linked slots: highest between waypoints of one link.
    fn link_weight(&self, a: usize, b: usize) -> f64 {
        match (self.slots[a].node, self.slots[b].node) {
            (None, None) => 16.0,
            (None, Some(_)) | (Some(_), None) => 2.0,
            (Some(_), Some(_)) => 4.0,
        }
    }

    fn apply_positions(&mut self, layer: usize, preferred: &[f64], gap: f64) {
        let sizes: Vec<f64> = self.layers[layer].iter().map(|&slot| self.slots[slot].size).collect();
        // Long links stay straight; boxes move instead.
        let weight = |&slot: &usize| if self.slots[slot].node.is_none() { 4.0 } else { 1.0 };
        let weights: Vec<f64> = self.layers[layer].iter().map(weight).collect();
        let centres = spread_positions(preferred, &sizes, &weights, gap);
        for (&slot, centre) in self.layers[layer].iter().zip(centres) {
            self.slots[slot].centre = centre;
        }
    }

    /// Returns the layout, shifted to start at zero.
    fn finish(self, gap: f64) -> GraphLayout {
        let start = |slot: &LayoutSlot| slot.centre - slot.size / 2.0;
        let least = self.slots.iter().map(start).min_by(f64::total_cmp).unwrap_or(0.0);
        let mut number = vec![0; self.slots.len()];
        for layer in &self.layers {
            layer.iter().enumerate().for_each(|(i, &slot)| number[slot] = i);
        }
        let moved = |slot: &LayoutSlot| LayoutSlot { centre: slot.centre - least, ..slot.clone() };
        let layers: Vec<Vec<LayoutSlot>> = self
            .layers
            .iter()
            .map(|layer| layer.iter().map(|&slot| moved(&self.slots[slot])).collect())
            .collect();
        let ends = layers.iter().flatten().map(|slot| slot.centre + slot.size / 2.0);
        let extent = ends.max_by(f64::total_cmp).unwrap_or(gap);
        let ways = self.routes.into_iter().map(|(first_layer, slots)| LinkRoute {
            first_layer,
            slots: slots.into_iter().map(|slot| number[slot]).collect(),
        });
        GraphLayout { extent, routes: ways.collect(), layers }
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    weighted_mean(values.map(|value| (value, 1.0)))
}

fn weighted_mean(values: impl Iterator<Item = (f64, f64)>) -> Option<f64> {
    let add = |(sum, total): (f64, f64), (value, weight): (f64, f64)| (sum + value * weight, total + weight);
    let (sum, total) = values.fold((0.0, 0.0), add);
    (total > 0.0).then(|| sum / total)
}

/// Returns the positions nearest to `preferred` (weighted least squares) that keep the order and the gaps.
///
/// Without the sizes this is isotonic regression: the sizes are removed first, neighbors that would overtake each
/// other are pooled at their common mean, and the sizes are added again.
fn spread_positions(preferred: &[f64], sizes: &[f64], weights: &[f64], gap: f64) -> Vec<f64> {
    let mut offsets = Vec::with_capacity(sizes.len());
    let mut offset = 0.0;
    for (i, size) in sizes.iter().enumerate() {
        offset += if i == 0 { 0.0 } else { f64::midpoint(sizes[i - 1], *size) + gap };
        offsets.push(offset);
    }
    let mut pools: Vec<PositionPool> = Vec::new();
    for ((position, offset), &weight) in preferred.iter().zip(&offsets).zip(weights) {
        let mut pool = PositionPool { value: position - offset, weight, count: 1 };
        while let Some(before) = pools.pop_if(|before| before.value > pool.value) {
            pool = before.merge_with(&pool);
        }
        pools.push(pool);
    }
    let values = pools.iter().flat_map(|pool| std::iter::repeat_n(pool.value, pool.count));
    values.zip(&offsets).map(|(value, offset)| value + offset).collect()
}

/// Neighbors with a common position.
struct PositionPool {
    value: f64,
    weight: f64,
    count: usize,
}

impl PositionPool {
    fn merge_with(&self, next: &Self) -> Self {
        let weight = self.weight + next.weight;
        let value = (self.value * self.weight + next.value * next.weight) / weight;
        Self { value, weight, count: self.count + next.count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::{DrawingLink, DrawingNode};
    use proptest::prelude::*;

    fn drawing(stages: &[usize], links: &[(usize, usize)]) -> GraphDrawing {
        let mut next = 0;
        let mut stage = |&count: &usize| {
            next += count;
            (next - count..next).collect()
        };
        let stages: Vec<Vec<usize>> = stages.iter().map(&mut stage).collect();
        GraphDrawing {
            headings: vec![String::new(); stages.len()],
            stages,
            nodes: vec![DrawingNode::default(); next],
            links: links
                .iter()
                .map(|&(from, to)| DrawingLink { from, to, label: String::new(), is_critical: false })
                .collect(),
        }
    }

    #[test]
    fn preferred_positions_are_used_where_there_is_room() {
        let alike = [1.0, 1.0];
        assert_eq!(spread_positions(&[0.0, 100.0], &[10.0, 10.0], &alike, 2.0), [0.0, 100.0]);
        assert_eq!(spread_positions(&[50.0, 50.0], &[10.0, 10.0], &alike, 2.0), [44.0, 56.0]);
        assert_eq!(spread_positions(&[50.0, 50.0], &[10.0, 10.0], &[3.0, 1.0], 2.0), [47.0, 59.0]);
        assert_eq!(spread_positions(&[], &[], &[], 2.0), Vec::<f64>::new());
    }

    #[test]
    fn chain_is_straight_and_fork_is_symmetric() {
        let chain = compute_layout(&drawing(&[1, 1, 1], &[(0, 1), (1, 2)]), |_| 10.0, 1.0, 4.0);
        assert!(chain.layers.iter().all(|layer| (layer[0].centre - 5.0).abs() < 1e-6));
        let fork = compute_layout(&drawing(&[1, 2], &[(0, 1), (0, 2)]), |_| 10.0, 1.0, 4.0);
        assert!((fork.layers[0][0].centre - 12.0).abs() < 1e-6, "{fork:?}");
        assert!((fork.extent - 24.0).abs() < 1e-6);
    }

    #[test]
    fn crossing_links_are_untangled() {
        let laid = compute_layout(&drawing(&[2, 2], &[(0, 3), (1, 2)]), |_| 10.0, 1.0, 4.0);
        let order: Vec<_> =
            laid.layers.iter().map(|layer| layer.iter().map(|s| s.node).collect::<Vec<_>>()).collect();
        let place = |layer: usize, node| order[layer].iter().position(|n| *n == Some(node)).unwrap();
        assert_eq!(place(0, 0), place(1, 3));
    }

    #[test]
    fn long_link_passes_beside_boxes() {
        let laid = compute_layout(&drawing(&[1, 1, 1], &[(0, 1), (1, 2), (0, 2)]), |_| 10.0, 1.0, 4.0);
        assert_eq!(laid.layers[1].len(), 2);
        assert_eq!(laid.routes[2].steps().count(), 2);
        assert_eq!(laid.routes[0].steps().count(), 1);
    }

    proptest! {
        #[test]
        fn boxes_do_not_overlap_and_links_reach_their_nodes(
            stages in proptest::collection::vec(1usize..6, 1..6),
            raw in proptest::collection::vec((0usize..30, 0usize..30), 0..40),
        ) {
            let count: usize = stages.iter().sum();
            let links: Vec<(usize, usize)> = raw.iter().map(|(a, b)| (a % count, b % count)).collect();
            let drawing = drawing(&stages, &links);
            let laid = compute_layout(&drawing, |node| 5.0 + node as f64, 1.0, 2.0);
            for layer in &laid.layers {
                for pair in layer.windows(2) {
                    let distance = pair[1].centre - pair[0].centre;
                    prop_assert!(distance >= f64::midpoint(pair[0].size, pair[1].size) + 2.0 - 1e-6);
                }
                prop_assert!(layer.iter().all(|slot| slot.centre - slot.size / 2.0 >= -1e-6));
            }
            for (link, way) in drawing.links.iter().zip(&laid.routes) {
                if let (Some(&first), Some(&last)) = (way.slots.first(), way.slots.last()) {
                    prop_assert_eq!(laid.layers[way.first_layer][first].node, Some(link.from));
                    prop_assert_eq!(laid.layers[way.first_layer + way.slots.len() - 1][last].node, Some(link.to));
                }
            }
        }
    }
}
