//! `windlass nodes`: those that get no jobs for a while.

use crate::args::nodes::{NodesArgs, NodesVerb, SetAsideArgs};
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::ui::listing::{Datum, Field, Listing};
use crate::ui::table::Column;
use windlass_client::Node;
use windlass_core::nodes::Standing;
use windlass_store::model::NodeAside;
use windlass_types::{Clock, Timestamp};

const FIELDS: &[Field<Node>] = &[
    Field::new("host", |node: &Node| (&node.host).into()).column(Column::text("HOST")),
    Field::new("user", |node: &Node| Datum::from(node.user.clone())),
    Field::new("standing", |node: &Node| (&node.standing).into()).column(Column::text("STANDING")),
    Field::new("since", |node: &Node| node.since.into()).column(Column::text("SINCE")),
    Field::new("until", |node: &Node| node.until.into()).column(Column::text("UNTIL")),
    Field::new("set_by", |node: &Node| (&node.set_by).into()).column(Column::text("BY")),
    Field::new("reason", |node: &Node| (&node.reason).into()).column(Column::text("REASON")),
    Field::new("evidence", |node: &Node| Datum::from(node.evidence.clone().unwrap_or_default())),
];

pub(crate) fn run(ctx: &Context, args: &NodesArgs) -> Result<Exit, CliError> {
    match &args.verb {
        None | Some(NodesVerb::List) => list(ctx),
        Some(NodesVerb::SetAside(args)) => set_aside(ctx, args),
        Some(NodesVerb::Release(args)) => {
            ctx.require_server()?.release_node(&args.host)?;
            ctx.ui.note(&format!("node {} gets jobs again", args.host));
            Ok(Exit::Success)
        }
    }
}

fn list(ctx: &Context) -> Result<Exit, CliError> {
    let nodes: Vec<Node> = if let Some(client) = ctx.server()? {
        client.nodes()?
    } else {
        let now = Clock.now();
        ctx.open_read()?.nodes_aside()?.into_iter().map(|row| from_row(row, now)).collect()
    };
    if nodes.is_empty() {
        ctx.ui.note("no node is set aside");
    }
    ctx.ui.print_list(&Listing::new(FIELDS), nodes)?;
    Ok(Exit::Success)
}

fn set_aside(ctx: &Context, args: &SetAsideArgs) -> Result<Exit, CliError> {
    let node = ctx.require_server()?.set_node_aside(&args.node.host, args.spell, &args.reason)?;
    ctx.ui.note(&format!("node {} gets no jobs until {}; what it runs goes on", node.host, node.until));
    Ok(Exit::Success)
}

/// As the books have it while no server is there.
fn from_row(row: NodeAside, now: Timestamp) -> Node {
    let NodeAside { host, user, since, until, set_by, reason, evidence } = row;
    let standing = Standing::of(Some(until), now).as_str().to_owned();
    Node { host, user, standing, since, until, set_by, reason, evidence }
}
