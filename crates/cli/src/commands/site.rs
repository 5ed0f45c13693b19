//! `windlass site`: where work units run; and `windlass admission`: how many requests may be under way at once.

use crate::args::site::{
    AdmissionArgs, AdmissionSetArgs, AdmissionVerb, BanArgs, BansArgs, DrainArgs, SetSiteArgs, SiteArgs,
    SiteVerb, UnbanArgs,
};
use crate::context::Context;
use crate::desk::Desk;
use crate::error::{CliError, Exit};
use crate::ui::listing::{Datum, Field, Listing};
use crate::ui::style::Tone;
use crate::ui::table::Column;
use crate::ui::text;
use serde_json::json;
use windlass_api::requests::{AdmissionConfig, Ban, Drain, NewBan, NextInQueue, PatchSite, Site};
use windlass_types::requests::SiteStatus;

const FIELDS: &[Field<Site>] = &[
    Field::new("name", |s: &Site| (&s.name).into()).column(Column::text("SITE")),
    Field::new("status", |s: &Site| Datum::Word(s.status.name(), Some(tone(s.status))))
        .column(Column::text("STATUS")),
    Field::new("total_slots", |s: &Site| s.total_slots.into()).column(Column::number("SLOTS")),
    Field::new("running_slots", |s: &Site| s.running_slots.into()).column(Column::number("RUNNING")),
    Field::new("pending_slots", |s: &Site| s.pending_slots.into()).column(Column::number("PENDING")),
    Field::new("drain_until", |s: &Site| s.drain_until.into()),
    Field::shown(Column::elastic("BANNED"), banned),
    Field::new("bans", |s: &Site| Datum::Json(json!(s.bans))),
    Field::new("storage_path", |s: &Site| s.storage_path.clone().into()).column(Column::text("STORAGE")),
    Field::new("storage_element", |s: &Site| s.storage_element.clone().into()),
    Field::new("schedd_name", |s: &Site| s.schedd_name.clone().into()),
    Field::new("collector_host", |s: &Site| s.collector_host.clone().into()),
    Field::new("thresholds", |s: &Site| Datum::Json(json!(s.thresholds))),
    Field::new("updated_at", |s: &Site| s.updated_at.into()),
];

const fn tone(status: SiteStatus) -> Tone {
    match status {
        SiteStatus::Enabled => Tone::Good,
        SiteStatus::Draining | SiteStatus::Maintenance => Tone::Warn,
        SiteStatus::Disabled => Tone::Bad,
    }
}

/// The first of its bans, in words.
fn banned(site: &Site) -> Datum {
    let Some(ban) = site.bans.first() else { return "".into() };
    let whom = ban.request_name.as_ref().map(|name| format!("for {name} ")).unwrap_or_default();
    let more = if site.bans.len() > 1 { format!(" (+{})", site.bans.len() - 1) } else { String::new() };
    format!("{whom}until {}: {}{more}", text::short_time(ban.expires_at), ban.reason).into()
}

pub(crate) fn run(ctx: &Context, args: &SiteArgs) -> Result<Exit, CliError> {
    match &args.verb {
        None | Some(SiteVerb::List) => list(ctx),
        Some(SiteVerb::Show(args)) => {
            let desk = ctx.desk_to_read()?;
            let site = known(&desk, &args.name, desk.site(&args.name))?;
            ctx.ui.print_record(&Listing::new(FIELDS), site)?;
            Ok(Exit::Success)
        }
        Some(SiteVerb::Drain(args)) => drain(ctx, args),
        Some(SiteVerb::Enable(args)) => {
            let desk = ctx.desk()?;
            let site = known(&desk, &args.name, desk.enable_site(&args.name))?;
            changed(ctx, site, "gets work again")
        }
        Some(SiteVerb::Ban(args)) => ban(ctx, args),
        Some(SiteVerb::Bans(args)) => bans(ctx, args),
        Some(SiteVerb::Unban(args)) => unban(ctx, args),
        Some(SiteVerb::Set(args)) => set(ctx, args),
    }
}

fn list(ctx: &Context) -> Result<Exit, CliError> {
    let sites = ctx.desk_to_read()?.sites()?.items;
    if sites.is_empty() {
        ctx.ui.note("no site is known; one is when a worker of it comes: `windlass worker --site NAME`");
    }
    ctx.ui.print_list(&Listing::new(FIELDS), sites)?;
    Ok(Exit::Success)
}

/// A site that is not there may have been spelled otherwise.
fn known<T>(desk: &Desk, name: &str, answer: Result<T, CliError>) -> Result<T, CliError> {
    answer.map_err(|error| {
        let Ok(sites) = desk.sites() else { return error };
        let is_there = sites.items.iter().any(|site| site.name == name);
        match windlass_spec::nearest(name, sites.items.iter().map(|site| site.name.as_str())) {
            Some(near) if !is_there => error.with_hint(format!("did you mean `{near}`?")),
            _ => error,
        }
    })
}

fn changed(ctx: &Context, site: Site, how: &str) -> Result<Exit, CliError> {
    ctx.ui.note(&format!("site {} {how}", site.name));
    if ctx.ui.json_wanted() {
        ctx.ui.print_record(&Listing::new(FIELDS), site)?;
    }
    Ok(Exit::Success)
}

fn drain(ctx: &Context, args: &DrainArgs) -> Result<Exit, CliError> {
    let until = args.until.or_else(|| args.spell.map(|spell| ctx.clock.now().after(spell)));
    let desk = ctx.desk()?;
    let site = known(&desk, &args.site.name, desk.drain_site(&args.site.name, Drain { until }))?;
    let until = until.map(|until| format!(" until {until}")).unwrap_or_default();
    changed(ctx, site, &format!("finishes what it has, and gets nothing new{until}"))
}

fn ban(ctx: &Context, args: &BanArgs) -> Result<Exit, CliError> {
    let ban = NewBan {
        request_name: args.request.clone(),
        reason: args.reason.clone(),
        seconds: args.spell.as_secs(),
    };
    let desk = ctx.desk()?;
    let site = known(&desk, &args.site.name, desk.ban_site(&args.site.name, &ban))?;
    let until = site.bans.last().map(|ban| ban.expires_at.to_string()).unwrap_or_default();
    let whose = args.request.as_ref().map(|name| format!(" of {name}")).unwrap_or_default();
    changed(ctx, site, &format!("gets no new work{whose} until {until}; what it runs goes on"))
}

const BANS: &[Field<Ban>] = &[
    Field::new("id", |b: &Ban| b.id.into()),
    Field::new("site_name", |b: &Ban| (&b.site_name).into()).column(Column::text("SITE")),
    Field::new("request_name", |b: &Ban| b.request_name.clone().into()).column(Column::text("REQUEST")),
    Field::new("created_at", |b: &Ban| b.created_at.into()),
    Field::new("expires_at", |b: &Ban| b.expires_at.into()).column(Column::text("UNTIL")),
    Field::new("created_by", |b: &Ban| (&b.created_by).into()).column(Column::text("BY")),
    Field::new("removed_by", |b: &Ban| b.removed_by.clone().into()).column(Column::text("LIFTED BY")),
    Field::new("removed_at", |b: &Ban| b.removed_at.into()),
    Field::new("reason", |b: &Ban| (&b.reason).into()).column(Column::elastic("REASON")),
    Field::new("failure_data", |b: &Ban| b.failure_data.clone().into()),
];

fn bans(ctx: &Context, args: &BansArgs) -> Result<Exit, CliError> {
    let desk = ctx.desk_to_read()?;
    let found = desk.bans(args.site.as_deref(), args.request.as_deref(), args.all)?;
    if found.items.is_empty() {
        ctx.ui.note("no site is banned");
    }
    ctx.ui.print_list(&Listing::new(BANS), found.items)?;
    Ok(Exit::Success)
}

fn unban(ctx: &Context, args: &UnbanArgs) -> Result<Exit, CliError> {
    let desk = ctx.desk()?;
    let name = &args.site.name;
    let lifted = known(&desk, name, desk.unban_site(name, args.request.as_deref()))?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&lifted)?;
    }
    ctx.ui.note(&match lifted.removed {
        0 => format!("site {name} was not banned"),
        n => format!("site {name}: {} lifted", text::count(n, "ban")),
    });
    Ok(Exit::Success)
}

fn set(ctx: &Context, args: &SetSiteArgs) -> Result<Exit, CliError> {
    let patch = PatchSite {
        status: args.status,
        total_slots: args.slots,
        storage_path: args.storage_path.clone(),
        storage_element: args.storage_element.clone(),
        ..PatchSite::default()
    };
    if patch == PatchSite::default() {
        return Err(CliError::user("what is to be otherwise?")
            .with_hint("--status, --slots, --storage-path and --storage-element say it"));
    }
    let site = ctx.desk()?.patch_site(&args.site.name, &patch)?;
    changed(ctx, site, "is as you said")
}

const QUEUE: &[Field<NextInQueue>] = &[
    Field::new("request_name", |n: &NextInQueue| (&n.request_name).into()).column(Column::elastic("REQUEST")),
    Field::new("priority", |n: &NextInQueue| n.priority.into()).column(Column::number("PRIORITY")),
    Field::new("urgent", |n: &NextInQueue| n.urgent.into()).column(Column::text("URGENT")),
    Field::new("requestor", |n: &NextInQueue| (&n.requestor).into()).column(Column::text("REQUESTOR")),
    Field::new("queued_since", |n: &NextInQueue| n.queued_since.into()).column(Column::text("SINCE")),
];

pub(crate) fn admission(ctx: &Context, args: &AdmissionArgs) -> Result<Exit, CliError> {
    match &args.verb {
        None => show_queue(ctx, 20),
        Some(AdmissionVerb::Show(args)) => show_queue(ctx, args.limit),
        Some(AdmissionVerb::Set(args)) => set_admission(ctx, args),
    }
}

fn show_queue(ctx: &Context, limit: u64) -> Result<Exit, CliError> {
    let queue = ctx.desk_to_read()?.admission(limit)?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&queue)?;
        return Ok(Exit::Success);
    }
    let waiting = text::count(queue.queued_workflows, "request");
    ctx.ui.note(&format!(
        "{} of {} places taken; {waiting} in the queue",
        queue.active_dags, queue.max_active_dags
    ));
    ctx.ui.print_list(&Listing::new(QUEUE), queue.queue)?;
    Ok(Exit::Success)
}

fn set_admission(ctx: &Context, args: &AdmissionSetArgs) -> Result<Exit, CliError> {
    let config = AdmissionConfig { max_active_dags: Some(args.max_active) };
    let config = ctx.desk()?.set_admission(&config)?;
    if ctx.ui.json_wanted() {
        ctx.ui.print_json(&config)?;
    }
    ctx.ui.note(&match args.max_active {
        0 => "nothing more starts from now on; what is under way goes on".to_owned(),
        most => format!("no more than {} at once from now on", text::count(most, "run")),
    });
    Ok(Exit::Success)
}
