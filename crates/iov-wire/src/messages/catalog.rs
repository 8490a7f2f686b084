//! Operations on facts and their replies, variant by variant as in [`iov_types::catalog`].

use iov_types::catalog::{
    CatalogOp, CatalogReply, Entry, LockSpec, Looked, Named, Opened, OpenedWorkspace, Page, Published, Removed,
    RenameMode, SearchSpec, Staged, Submission, Told,
};

use crate::{choice, message, numbers};

choice! {
    strict Submission {
        1 => Each,
        2 => UntilFailure,
        3 => DryRun,
        4 => All { 1 => batch: uuid, 2 => remember: boolean, 3 => staged: repeated message },
    }
}

message! { strict Staged { 1 => workspace: uuid, 2 => collection: uuid, 3 => epoch: uint, 4 => place: uint } }

message! {
    strict SearchSpec {
        1 => predicate: optional string,
        2 => params: repeated message,
        3 => group: optional uuid,
        4 => deep: boolean,
        5 => order: optional string,
        6 => limit: uint,
        7 => keys: repeated string,
        8 => count: boolean,
        9 => names: boolean,
        10 => page: uint,
    }
}

message! {
    strict LockSpec {
        1 => exclusive: boolean,
        2 => try_only: boolean,
        3 => range: message,
        4 => owner: uint,
        5 => lease_ns: sint,
    }
}

numbers! { RenameMode { Replace = 1, NoReplace = 2, Exchange = 3, ReplaceAlike = 4 } }

choice! {
    strict CatalogOp {
        1 => WorkspaceCreate { 1 => uuid: uuid, 2 => name: required name, 3 => attr: message },
        2 => WorkspaceLoad { 1 => which: required message },
        3 => WorkspaceSearch { 1 => spec: required message },
        4 => WorkspaceDelete { 1 => which: required message },
        5 => WorkspaceStat { 1 => ws: uuid },
        6 => WorkspaceSet { 1 => ws: uuid, 2 => attr: message },
        7 => WorkspaceRename { 1 => ws: uuid, 2 => name: required name },
        8 => WorkspacePersist { 1 => ws: uuid, 2 => durable: boolean },
        9 => Create {
            1 => ws: uuid,
            2 => uuid: uuid,
            3 => kind: required number,
            4 => parent: uuid,
            5 => name: optional name,
            6 => metadata: pairs,
            7 => controls: message,
            8 => layout: optional message,
            9 => attr: message,
            10 => tell: boolean,
        },
        10 => Open {
            1 => ws: uuid,
            2 => parent: uuid,
            3 => which: required message,
            4 => kind: required number,
            5 => controls: message,
            6 => tell: optional uint,
        },
        11 => Close { 1 => ws: uuid, 2 => uuid: uuid, 3 => published: optional message },
        12 => Delete { 1 => ws: uuid, 2 => parent: uuid, 3 => which: required message },
        13 => Stat { 1 => ws: uuid, 2 => uuid: uuid },
        14 => Set { 1 => ws: uuid, 2 => uuid: uuid, 3 => controls: optional message, 4 => layout: optional message },
        15 => SetAttr { 1 => ws: uuid, 2 => uuid: uuid, 3 => attr: message },
        16 => Rename {
            1 => ws: uuid,
            2 => from_parent: uuid,
            3 => from: required name,
            4 => to_parent: uuid,
            5 => to: required name,
            6 => mode: required number,
        },
        17 => Link { 1 => ws: uuid, 2 => uuid: uuid, 3 => parent: uuid, 4 => name: required name },
        18 => Search { 1 => ws: uuid, 2 => spec: required message },
        19 => SearchNext { 1 => cursor: uuid, 2 => page: uint },
        20 => SearchClose { 1 => cursor: uuid },
        21 => MetaGet { 1 => ws: uuid, 2 => uuid: uuid, 3 => key: string },
        22 => MetaPut { 1 => ws: uuid, 2 => uuid: uuid, 3 => pairs: pairs },
        23 => MetaRemove { 1 => ws: uuid, 2 => uuid: uuid, 3 => key: string },
        24 => MetaList { 1 => ws: uuid, 2 => uuid: uuid },
        25 => Publish { 1 => ws: uuid, 2 => uuid: uuid, 3 => published: message },
        26 => Seal { 1 => ws: uuid, 2 => uuid: uuid, 3 => published: message },
        27 => Lock { 1 => ws: uuid, 2 => uuid: uuid, 3 => lock: required message },
        28 => Unlock { 1 => ws: uuid, 2 => uuid: uuid, 3 => lock: required message },
        29 => LockQuery { 1 => ws: uuid, 2 => uuid: uuid, 3 => lock: required message },
        30 => TokenExport,
        31 => TokenJoin { 1 => token: bytes },
        32 => Renew,
        33 => Goodbye,
        34 => Read { 1 => ws: uuid, 2 => uuid: uuid, 3 => offset: uint, 4 => len: uint },
        35 => Write { 1 => ws: uuid, 2 => uuid: uuid, 3 => offset: uint, 4 => data: bytes },
        36 => MoveOut { 1 => ws: uuid, 2 => uuid: uuid },
        37 => Map { 1 => from: uint },
        38 => Ticket { 1 => uuid: uuid },
        39 => Look { 1 => ws: uuid, 2 => parent: uuid, 3 => which: required message, 4 => ahead: uint, 5 => tell: uint },
        40 => Truncate { 1 => ws: uuid, 2 => uuid: uuid, 3 => size: uint },
        41 => Unlink { 1 => ws: uuid, 2 => parent: uuid, 3 => name: required name, 4 => group: boolean },
        42 => Append { 1 => ws: uuid, 2 => uuid: uuid, 3 => data: bytes },
        43 => Discard { 1 => ws: uuid, 2 => uuid: uuid },
    }
}

message! { strict Published { 1 => size: uint, 2 => allocated: uint, 3 => mtime_ns: sint } }

message! {
    Opened {
        1 => ws: uuid,
        2 => uuid: uuid,
        3 => kind: required number,
        4 => state: required number,
        5 => effective: required message,
        6 => layout: message,
        7 => epoch: uint,
        8 => writable: boolean,
        9 => inline: boolean,
        10 => size: optional uint,
        11 => told: optional message,
    }
}

message! {
    Told {
        1 => stat: required message,
        2 => bytes: optional bytes,
        3 => group: optional message,
        4 => may_keep: boolean,
    }
}

message! {
    OpenedWorkspace {
        1 => uuid: uuid,
        2 => name: required name,
        3 => controls: message,
        4 => layout: optional message,
        5 => writable: boolean,
        6 => indexes: repeated string,
    }
}

message! {
    Entry {
        1 => kind: required number,
        2 => uuid: uuid,
        3 => group: uuid,
        4 => name: optional name,
        5 => metadata: optional pairs,
    }
}

message! {
    Named {
        1 => name: required name,
        2 => stat: required message,
        3 => bytes: optional bytes,
        4 => writable: boolean,
    }
}

message! { Looked { 1 => entries: repeated message } }

message! { Removed { 1 => uuid: uuid, 2 => mode: uint, 3 => links: uint, 4 => group: optional message } }

message! { Page { 1 => entries: repeated message, 2 => cursor: optional uuid, 3 => count: optional uint } }

choice! {
    CatalogReply {
        1 => Done,
        2 => Workspace(message),
        3 => Opened(message),
        4 => Stat(message),
        5 => Value(message),
        6 => Metadata(pairs),
        7 => Page(message),
        8 => Lock(message),
        9 => Token(bytes),
        10 => Bytes(bytes),
        11 => Moved,
        12 => Map(message),
        13 => Ticket(message),
        14 => Looked(message),
        15 => Removed(message),
        16 => Appended(uint),
    }
}
