use iov_types::catalog::*;
use proptest::prelude::*;

use super::*;

pub(crate) fn submission() -> BoxedStrategy<Submission> {
    let staged = (uuid(), uuid(), number(), place()).prop_map(|(workspace, collection, epoch, place)| Staged {
        workspace,
        collection,
        epoch,
        place,
    });
    prop_oneof![
        Just(Submission::Each),
        Just(Submission::UntilFailure),
        Just(Submission::DryRun),
        (uuid(), any::<bool>(), list(staged)).prop_map(|(batch, remember, staged)| Submission::All {
            batch,
            remember,
            staged
        }),
    ]
    .boxed()
}

fn search() -> BoxedStrategy<SearchSpec> {
    let texts = (maybe(any::<String>()), maybe(any::<String>()), list(any::<String>()), list(value()));
    (texts, maybe(uuid()), number(), any::<usize>(), any::<[bool; 3]>())
        .prop_map(|((predicate, order, keys, params), group, limit, page, [deep, count, names])| SearchSpec {
            predicate,
            params,
            group,
            deep,
            order,
            limit,
            keys,
            count,
            names,
            page,
        })
        .boxed()
}

pub(crate) fn lock() -> BoxedStrategy<LockSpec> {
    (any::<[bool; 2]>(), range(), number(), time())
        .prop_map(|([exclusive, try_only], range, owner, lease_ns)| LockSpec {
            exclusive,
            try_only,
            range,
            owner,
            lease_ns,
        })
        .boxed()
}

fn published() -> BoxedStrategy<Published> {
    (number(), number(), time()).prop_map(|(size, allocated, mtime_ns)| Published { size, allocated, mtime_ns }).boxed()
}

fn create() -> BoxedStrategy<CatalogOp> {
    let who = (uuid(), uuid(), uuid(), maybe(name()), entry_kind());
    (who, metadata(), controls(), maybe(layout()), (attr(), any::<bool>()))
        .prop_map(|((ws, uuid, parent, name, kind), metadata, controls, layout, (attr, tell))| CatalogOp::Create {
            ws,
            uuid,
            kind,
            parent,
            name,
            metadata,
            controls,
            layout,
            attr,
            tell,
        })
        .boxed()
}

fn workspace_op() -> BoxedStrategy<CatalogOp> {
    use CatalogOp::*;
    prop_oneof![
        (uuid(), name(), workspace_attr()).prop_map(|(uuid, name, attr)| WorkspaceCreate { uuid, name, attr }),
        which().prop_map(|which| WorkspaceLoad { which }),
        search().prop_map(|spec| WorkspaceSearch { spec }),
        which().prop_map(|which| WorkspaceDelete { which }),
        uuid().prop_map(|ws| WorkspaceStat { ws }),
        (uuid(), workspace_attr()).prop_map(|(ws, attr)| WorkspaceSet { ws, attr }),
        (uuid(), name()).prop_map(|(ws, name)| WorkspaceRename { ws, name }),
        (uuid(), any::<bool>()).prop_map(|(ws, durable)| WorkspacePersist { ws, durable }),
    ]
    .boxed()
}

fn entry_op() -> BoxedStrategy<CatalogOp> {
    use CatalogOp::*;
    let mode = one_of(&[RenameMode::Replace, RenameMode::ReplaceAlike, RenameMode::NoReplace, RenameMode::Exchange]);
    prop_oneof![
        create(),
        (uuid(), uuid(), which(), entry_kind(), controls(), any::<Option<u64>>())
            .prop_map(|(ws, parent, which, kind, controls, tell)| Open { ws, parent, which, kind, controls, tell }),
        (uuid(), uuid(), maybe(published())).prop_map(|(ws, uuid, published)| Close { ws, uuid, published }),
        (uuid(), uuid(), which()).prop_map(|(ws, parent, which)| Delete { ws, parent, which }),
        (uuid(), uuid(), name(), any::<bool>()).prop_map(|(ws, parent, name, group)| Unlink {
            ws,
            parent,
            name,
            group
        }),
        (uuid(), uuid()).prop_map(|(ws, uuid)| Discard { ws, uuid }),
        (uuid(), uuid(), any::<Vec<u8>>()).prop_map(|(ws, uuid, data)| Append { ws, uuid, data }),
        (uuid(), uuid()).prop_map(|(ws, uuid)| Stat { ws, uuid }),
        (uuid(), uuid(), maybe(controls()), maybe(layout())).prop_map(|(ws, uuid, controls, layout)| Set {
            ws,
            uuid,
            controls,
            layout
        }),
        (uuid(), uuid(), attr()).prop_map(|(ws, uuid, attr)| SetAttr { ws, uuid, attr }),
        (uuid(), uuid(), name(), uuid(), name(), mode).prop_map(|(ws, from_parent, from, to_parent, to, mode)| {
            Rename { ws, from_parent, from, to_parent, to, mode }
        }),
        (uuid(), uuid(), uuid(), name()).prop_map(|(ws, uuid, parent, name)| Link { ws, uuid, parent, name }),
        (uuid(), uuid(), published()).prop_map(|(ws, uuid, published)| Publish { ws, uuid, published }),
        (uuid(), uuid(), published()).prop_map(|(ws, uuid, published)| Seal { ws, uuid, published }),
    ]
    .boxed()
}

fn other_op() -> BoxedStrategy<CatalogOp> {
    use CatalogOp::*;
    prop_oneof![
        (uuid(), search()).prop_map(|(ws, spec)| Search { ws, spec }),
        (uuid(), any::<usize>()).prop_map(|(cursor, page)| SearchNext { cursor, page }),
        uuid().prop_map(|cursor| SearchClose { cursor }),
        (uuid(), uuid(), any::<String>()).prop_map(|(ws, uuid, key)| MetaGet { ws, uuid, key }),
        (uuid(), uuid(), metadata()).prop_map(|(ws, uuid, pairs)| MetaPut { ws, uuid, pairs }),
        (uuid(), uuid(), any::<String>()).prop_map(|(ws, uuid, key)| MetaRemove { ws, uuid, key }),
        (uuid(), uuid()).prop_map(|(ws, uuid)| MetaList { ws, uuid }),
        (uuid(), uuid(), lock()).prop_map(|(ws, uuid, lock)| Lock { ws, uuid, lock }),
        (uuid(), uuid(), lock()).prop_map(|(ws, uuid, lock)| Unlock { ws, uuid, lock }),
        (uuid(), uuid(), lock()).prop_map(|(ws, uuid, lock)| LockQuery { ws, uuid, lock }),
        Just(TokenExport),
        any::<Vec<u8>>().prop_map(|token| TokenJoin { token }),
        (uuid(), uuid(), number(), number()).prop_map(|(ws, uuid, offset, len)| Read { ws, uuid, offset, len }),
        (uuid(), uuid(), number(), any::<Vec<u8>>()).prop_map(|(ws, uuid, offset, data)| Write {
            ws,
            uuid,
            offset,
            data
        }),
        (uuid(), uuid()).prop_map(|(ws, uuid)| MoveOut { ws, uuid }),
        any::<u32>().prop_map(|from| Map { from }),
        uuid().prop_map(|uuid| Ticket { uuid }),
        (uuid(), uuid(), which(), any::<u32>(), number()).prop_map(|(ws, parent, which, ahead, tell)| Look {
            ws,
            parent,
            which,
            ahead,
            tell
        }),
        (uuid(), uuid(), number()).prop_map(|(ws, uuid, size)| Truncate { ws, uuid, size }),
        Just(Renew),
        Just(Goodbye),
    ]
    .boxed()
}

pub(crate) fn catalog_op() -> BoxedStrategy<CatalogOp> {
    prop_oneof![workspace_op(), entry_op(), other_op()].boxed()
}

fn opened() -> BoxedStrategy<Opened> {
    let what = (uuid(), uuid(), entry_kind(), state());
    let told = (stat(), any::<Option<Vec<u8>>>(), maybe(stat()), any::<bool>());
    let told = told.prop_map(|(stat, bytes, group, may_keep)| Box::new(Told { stat, bytes, group, may_keep }));
    let rest = (any::<(bool, bool)>(), any::<Option<u64>>(), maybe(told));
    (what, effective(), layout(), number(), rest)
        .prop_map(|((ws, uuid, kind, state), effective, layout, epoch, ((writable, inline), size, told))| Opened {
            ws,
            uuid,
            kind,
            state,
            effective,
            layout,
            epoch,
            writable,
            inline,
            size,
            told,
        })
        .boxed()
}

fn opened_workspace() -> BoxedStrategy<OpenedWorkspace> {
    (uuid(), name(), controls(), maybe(layout()), any::<bool>(), list(any::<String>()))
        .prop_map(|(uuid, name, controls, layout, writable, indexes)| OpenedWorkspace {
            uuid,
            name,
            controls,
            layout,
            writable,
            indexes,
        })
        .boxed()
}

fn page() -> BoxedStrategy<Page> {
    let entry = (entry_kind(), uuid(), uuid(), maybe(name()), maybe(list((any::<String>(), value()))))
        .prop_map(|(kind, uuid, group, name, metadata)| Entry { kind, uuid, group, name, metadata });
    (list(entry), maybe(uuid()), maybe(number()))
        .prop_map(|(entries, cursor, count)| Page { entries, cursor, count })
        .boxed()
}

fn looked() -> BoxedStrategy<Looked> {
    let named = (name(), stat(), any::<Option<Vec<u8>>>(), any::<bool>());
    let named = named.prop_map(|(name, stat, bytes, writable)| Named { name, stat, bytes, writable });
    list(named).prop_map(|entries| Looked { entries }).boxed()
}

fn removed() -> BoxedStrategy<Removed> {
    (uuid(), any::<u32>(), any::<u32>(), maybe(stat()))
        .prop_map(|(uuid, mode, links, group)| Removed { uuid, mode, links, group })
        .boxed()
}

pub(crate) fn catalog_reply() -> BoxedStrategy<CatalogReply> {
    use CatalogReply::*;
    prop_oneof![
        Just(Done),
        opened_workspace().prop_map(|w| Workspace(Box::new(w))),
        opened().prop_map(|o| Opened(Box::new(o))),
        stat().prop_map(|s| Stat(Box::new(s))),
        looked().prop_map(CatalogReply::Looked),
        removed().prop_map(|r| CatalogReply::Removed(Box::new(r))),
        any::<u64>().prop_map(Appended),
        value().prop_map(Value),
        metadata().prop_map(Metadata),
        page().prop_map(Page),
        lock().prop_map(Lock),
        any::<Vec<u8>>().prop_map(Token),
        any::<Vec<u8>>().prop_map(Bytes),
        Just(Moved),
        list((any::<u32>(), list(any::<u32>()))).prop_map(|patterns| {
            let pattern = |(number, targets)| iov_types::Pattern { number, targets };
            let patterns = patterns.into_iter().map(pattern).collect();
            Map(Box::new(iov_types::StoreMap { targets: Vec::new(), patterns }))
        }),
        (any::<Vec<u8>>(), any::<u64>(), any::<bool>()).prop_map(|(bytes, lasts_ns, writable)| {
            Ticket(Box::new(iov_types::SignedTicket { bytes, lasts_ns, writable }))
        }),
    ]
    .boxed()
}
