//! `windlass worker nodes`: quarantined nodes.

use crate::args::nodes::{NodeQuarantineArgs, NodesArgs, NodesSubcommand};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::ui::listing::{FieldValue, ListField, ListFields};
use crate::ui::table::TableColumn;
use windlass_client::NodeQuarantineInfo;
use windlass_core::node_quarantine::NodeEligibility;
use windlass_store::model::NodeQuarantineRow;
use windlass_types::{SystemClock, Timestamp};

const FIELDS: &[ListField<NodeQuarantineInfo>] = &[
    ListField::new("host", |node: &NodeQuarantineInfo| (&node.host).into()).column(TableColumn::text("HOST")),
    ListField::new("user", |node: &NodeQuarantineInfo| FieldValue::from(node.user.clone())),
    ListField::new("standing", |node: &NodeQuarantineInfo| (&node.standing).into())
        .column(TableColumn::text("STANDING")),
    ListField::new("since", |node: &NodeQuarantineInfo| node.since.into()).column(TableColumn::text("SINCE")),
    ListField::new("until", |node: &NodeQuarantineInfo| node.until.into()).column(TableColumn::text("UNTIL")),
    ListField::new("set_by", |node: &NodeQuarantineInfo| (&node.set_by).into())
        .column(TableColumn::text("BY")),
    ListField::new("reason", |node: &NodeQuarantineInfo| (&node.reason).into())
        .column(TableColumn::text("REASON")),
    ListField::new("evidence", |node: &NodeQuarantineInfo| {
        FieldValue::from(node.evidence.clone().unwrap_or_default())
    }),
];

pub(crate) fn run(ctx: &CliContext, args: &NodesArgs) -> Result<CliExit, CliError> {
    match &args.verb {
        None | Some(NodesSubcommand::List) => list_nodes(ctx),
        Some(NodesSubcommand::Quarantine(args)) => quarantine_node(ctx, args),
        Some(NodesSubcommand::Release(args)) => {
            ctx.require_server()?.release_node(&args.host)?;
            ctx.ui.print_note(&format!("node {} is released from quarantine", args.host));
            Ok(CliExit::Success)
        }
    }
}

fn list_nodes(ctx: &CliContext) -> Result<CliExit, CliError> {
    let nodes: Vec<NodeQuarantineInfo> = if let Some(client) = ctx.server()? {
        client.quarantined_nodes()?
    } else {
        let now = SystemClock.now();
        ctx.open_read()?.quarantined_nodes()?.into_iter().map(|row| node_from_row(row, now)).collect()
    };
    if nodes.is_empty() {
        ctx.ui.print_note("no nodes are in quarantine");
    }
    ctx.ui.print_list(&ListFields::new(FIELDS), nodes)?;
    Ok(CliExit::Success)
}

fn quarantine_node(ctx: &CliContext, args: &NodeQuarantineArgs) -> Result<CliExit, CliError> {
    let node = ctx.require_server()?.quarantine_node(&args.node.host, args.spell, &args.reason)?;
    ctx.ui.print_note(&format!(
        "node {} is in quarantine until {}; running jobs continue",
        node.host, node.until
    ));
    Ok(CliExit::Success)
}

/// From the database, if no server is running.
fn node_from_row(row: NodeQuarantineRow, now: Timestamp) -> NodeQuarantineInfo {
    let NodeQuarantineRow { host, user, since, until, set_by, reason, evidence } = row;
    let standing = NodeEligibility::from_quarantine(Some(until), now).as_str().to_owned();
    NodeQuarantineInfo { host, user, standing, since, until, set_by, reason, evidence }
}
