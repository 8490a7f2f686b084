//! Creating and changing workspaces.

use ioverbs::{Error, Kind, Name, Op, Which, WorkspaceAttr};
use serde_json::json;

use super::Properties;
use crate::{
    address::Address,
    ctx::Ctx,
    failure::{Done, Next},
    output::quoted,
    quantity,
};

pub(super) fn create(ctx: &mut Ctx, address: &Address, properties: &Properties, exist_ok: bool) -> Done {
    address.only_workspace()?;
    let Which::Name(name) = &address.workspace else {
        return Err(Error::invalid("a new workspace needs a name; its UUID is given to it").into());
    };
    let controls = properties.controls.read()?;
    let attr = WorkspaceAttr { controls: Some(controls.clone()), ..properties.read()? };
    attr.expires_ns.map_or(Ok(()), |ns| quantity::ahead(ns, properties.expires.as_deref().unwrap_or_default()))?;
    let session = ctx.session_or_new()?;
    // A refusal comes with what can be had instead.
    session.check_controls(None, &controls)?;
    let ws = match session.create_workspace(name.clone(), attr) {
        Err(e) if e.kind() == Kind::Exists && exist_ok => session.load_workspace(address.workspace.clone())?,
        Err(e) if e.kind() == Kind::Exists => {
            return Err(e)
                .next(|| format!("iov ws show {}, or --exist-ok to go on with it as it is", address.quoted()));
        }
        created => created?,
    };
    if ctx.global.json {
        ctx.out.line(json!({ "name": crate::output::json_name(name.as_bytes()), "uuid": ws.uuid().to_string() }))?;
    }
    Ok(())
}

pub(super) fn set(ctx: &mut Ctx, address: &Address, properties: &Properties, rename: Option<&str>) -> Done {
    address.only_workspace()?;
    let rename = rename.map(Name::new).transpose()?;
    let ws = ctx.workspace(address)?;
    let mut attr = properties.read()?;
    if !properties.controls.controls.is_empty() {
        let mut controls = ws.defaults();
        properties.controls.read_over(&mut controls)?;
        ws.session().check_controls(None, &controls)?;
        attr.controls = Some(controls);
    }
    if attr == WorkspaceAttr::default() && rename.is_none() {
        return Err(Error::invalid("nothing to set")).next(|| "iov ws set --help lists what can be set".into());
    }
    if attr != WorkspaceAttr::default() {
        ioverbs::run(ws.session(), Op::WorkspaceSet { w: ws.clone(), attr })?;
    }
    if let Some(name) = rename {
        ioverbs::run(ws.session(), Op::WorkspaceRename { w: ws.clone(), name })?;
    }
    Ok(())
}

pub(super) fn extend(ctx: &mut Ctx, address: &Address, expires: &str) -> Done {
    address.only_workspace()?;
    let expires_ns = quantity::read_expiry(expires)?;
    quantity::ahead(expires_ns, expires)?;
    let ws = ctx.workspace(address)?;
    let now = super::show::usage(&ws)?;
    if expires_ns <= now.expires_ns && now.expires_ns != i64::MAX {
        let ends = quantity::local_minute(now.expires_ns);
        return Err(Error::invalid(format!("{address} lives until {ends} already: extend does not shorten")))
            .next(|| format!("iov ws set {} --expires {}", address.quoted(), quoted(expires.as_bytes())));
    }
    if now.expires_ns == i64::MAX {
        return Err(Error::invalid(format!("{address} never expires")))
            .next(|| format!("iov ws set {} --expires {}", address.quoted(), quoted(expires.as_bytes())));
    }
    let attr = WorkspaceAttr { expires_ns: Some(expires_ns), ..WorkspaceAttr::default() };
    Ok(ioverbs::run(ws.session(), Op::WorkspaceSet { w: ws.clone(), attr }).map(drop)?)
}
