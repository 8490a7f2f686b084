//! From an operation to its verb.

use iov_types::{
    Uuid,
    catalog::{CatalogOp, CatalogReply},
};

use super::Exec;
use crate::verbs::{self, Reply, create::New};

impl Exec<'_> {
    pub(super) fn dispatch(&mut self, op: CatalogOp) -> Reply {
        match op {
            CatalogOp::WorkspaceCreate { uuid, name, attr } => verbs::workspace_create::create(self, uuid, name, attr),
            CatalogOp::WorkspaceLoad { which } => verbs::workspace_load::load(self, &which),
            CatalogOp::WorkspaceSearch { spec } => verbs::workspace_search::search(self, &spec),
            CatalogOp::WorkspaceDelete { which } => verbs::workspace_delete::delete(self, &which),
            CatalogOp::WorkspaceStat { ws } => verbs::workspace_stat::stat(self, ws),
            CatalogOp::WorkspaceSet { ws, attr } => verbs::workspace_set::set(self, ws, attr),
            CatalogOp::WorkspaceRename { ws, name } => verbs::workspace_rename::rename(self, ws, name),
            CatalogOp::WorkspacePersist { ws, durable } => verbs::workspace_persist::persist(self, ws, durable),
            CatalogOp::Create { ws, uuid, kind, parent, name, metadata, controls, layout, attr, tell } => {
                let new = New { ws, uuid, kind, parent, name, metadata, controls, layout, attr, tell };
                verbs::create::create(self, new)
            }
            CatalogOp::Open { ws, parent, which, kind, controls, tell } => {
                verbs::open::open(self, ws, parent, &which, kind, (&controls, tell))
            }
            CatalogOp::Close { ws, uuid, published } => verbs::close::close(self, ws, uuid, published.is_some()),
            CatalogOp::Delete { ws, parent, which } => verbs::delete::delete(self, ws, parent, &which),
            CatalogOp::Unlink { ws, parent, name, group } => verbs::delete::unlink(self, ws, parent, (&name, group)),
            CatalogOp::Discard { ws, uuid } => verbs::delete::discard(self, ws, uuid),
            CatalogOp::Stat { ws, uuid } => verbs::stat::stat(self, ws, uuid),
            CatalogOp::Look { ws, parent, which, ahead, tell } => {
                verbs::stat::look(self, ws, parent, &which, (ahead, tell))
            }
            CatalogOp::Set { ws, uuid, controls, layout } => verbs::set::set(self, ws, uuid, controls.as_ref(), layout),
            CatalogOp::SetAttr { ws, uuid, attr } => verbs::setattr::setattr(self, ws, uuid, &attr),
            CatalogOp::Rename { ws, from_parent, from, to_parent, to, mode } => {
                verbs::rename::rename(self, ws, (from_parent, &from), (to_parent, &to), mode)
            }
            CatalogOp::Link { ws, uuid, parent, name } => verbs::link::link(self, ws, uuid, parent, name),
            CatalogOp::Search { ws, spec } => verbs::search::search(self, ws, &spec),
            CatalogOp::SearchNext { cursor, page } => verbs::search::next(self, cursor, page),
            CatalogOp::SearchClose { cursor } => verbs::search::close(self, cursor),
            CatalogOp::MetaGet { ws, uuid, key } => verbs::meta::get(self, ws, uuid, &key),
            CatalogOp::MetaPut { ws, uuid, pairs } => verbs::meta::put(self, ws, uuid, &pairs),
            CatalogOp::MetaRemove { ws, uuid, key } => verbs::meta::remove(self, ws, uuid, &key),
            CatalogOp::MetaList { ws, uuid } => verbs::meta::list(self, ws, uuid),
            CatalogOp::Publish { ws, uuid, .. } => verbs::publish::publish(self, ws, uuid),
            CatalogOp::Seal { ws, uuid, .. } => verbs::seal::seal(self, ws, uuid),
            CatalogOp::Read { ws, uuid, offset, len } => verbs::bytes::read(self, ws, uuid, offset, len),
            CatalogOp::Write { ws, uuid, offset, data } => {
                let written = verbs::bytes::write(self, ws, uuid, offset, &data);
                self.note_sent_on(uuid, written)
            }
            CatalogOp::Append { ws, uuid, data } => {
                let appended = verbs::bytes::append(self, ws, uuid, &data);
                self.note_sent_on(uuid, appended)
            }
            CatalogOp::Truncate { ws, uuid, size } => {
                let cut = verbs::bytes::truncate(self, ws, uuid, size);
                self.note_sent_on(uuid, cut)
            }
            CatalogOp::MoveOut { ws, uuid } => verbs::bytes::move_out(self, ws, uuid),
            CatalogOp::Lock { ws, uuid, lock } => verbs::lock::lock(self, ws, uuid, &lock),
            CatalogOp::Unlock { ws, uuid, lock } => verbs::lock::unlock(self, ws, uuid, &lock),
            CatalogOp::LockQuery { ws, uuid, lock } => verbs::lock::query(self, ws, uuid, &lock),
            CatalogOp::TokenExport => verbs::session::export(self),
            CatalogOp::TokenJoin { token } => verbs::session::join(self, &token),
            CatalogOp::Renew => verbs::session::renew(self),
            CatalogOp::Goodbye => verbs::session::goodbye(self),
            CatalogOp::Map { from } => verbs::map::map(self, from),
            CatalogOp::Ticket { uuid } => verbs::ticket::ticket(self, uuid),
        }
    }

    /// Takes note of who is to write elsewhere: what it does behind that in this submission, it does too early.
    fn note_sent_on(&mut self, uuid: Uuid, reply: Reply) -> Reply {
        if matches!(reply, Ok(CatalogReply::Moved)) {
            self.sent_on.push(uuid);
        }
        reply
    }
}
