//! Commands on the store. `H` is a handle of the worker, `DATA` as in [`super::data`]; numbers may be sums of
//! products, as in `4096+2*8`.

use ioverbs::{
    BatchAttr, Collection, Controls, EntryKind, Error, Kind, Lent, Metadata, Name, OnError, Op, Output, Result,
    SessionAttr, Value, Which,
    catalog::{RenameMode, SearchSpec},
    run, run_batch, text,
};

use super::{World, answer, data};

/// A command that was understood.
pub(crate) enum Command {
    /// `create H NAME CONTROLS`
    Create(String, Name, Controls),
    /// `lookup H NAME CONTROLS`; NAME may be `uuid:…`.
    Lookup(String, Which, Controls),
    /// `close H`, `commit H`, `persist H`, `seal H`, `stat H`
    Handle(Verb, String),
    /// `drop H`
    Drop(String),
    /// `write H OFFSET LENGTH DATA`
    Write(String, u64, Vec<u8>),
    /// `read H OFFSET LENGTH`: the runs of bytes.
    Read(String, u64, usize),
    /// `append H LENGTH DATA`: the offset.
    Append(String, Vec<u8>),
    /// `truncate H SIZE`
    Truncate(String, u64),
    /// `put H KEY NUMBER`
    Put(String, String, i64),
    /// `get H KEY`
    Get(String, String),
    /// `delete NAME`
    Delete(Which),
    /// `rename FROM TO`: replaces.
    Rename(Name, Name),
    /// `find PREDICATE`: the names, sorted.
    Find(String),
    /// `wscommit`: publishes the names of the workspace.
    WorkspaceCommit,
    /// `effective H`: the consistency that was granted.
    Effective(String),
    /// `batch POLICY / COMMAND / COMMAND …`: the answers, separated by `/`.
    Batch(OnError, Vec<Command>),
    /// `reopen COMMAND`: with a session of its own, on the same store.
    Reopen(String),
}

#[derive(Clone, Copy)]
pub(crate) enum Verb {
    Close,
    Commit,
    Persist,
    Seal,
    Stat,
}

fn invalid(why: impl std::fmt::Display) -> Error {
    Error::new(Kind::Invalid, format!("the worker does not understand {why}"))
}

fn controls(words: &[&str]) -> Result<Controls> {
    let mut c = Controls::default();
    text::parse(&mut c, &words.join(","))?;
    Ok(c)
}

impl Command {
    pub(crate) fn parse(line: &str) -> Result<Command> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| -> Result<u64> {
            let sum = words.get(at).and_then(|w| data::number(w));
            sum.ok_or_else(|| invalid(format!("word {at} of {line:?}")))
        };
        let bytes = |at: usize| {
            let made = words.get(at + 1).and_then(|w| data::make(w, number(at).ok()? as usize));
            made.ok_or_else(|| invalid(format!("the data of {line:?}")))
        };
        let handle = |verb| Command::Handle(verb, words.get(1).copied().unwrap_or_default().to_owned());
        Ok(match words[..] {
            ["create", h, name, ref rest @ ..] => Command::Create(h.into(), Name::new(name)?, controls(rest)?),
            ["lookup", h, name, ref rest @ ..] => Command::Lookup(h.into(), Which::parse(name)?, controls(rest)?),
            ["close", _] => handle(Verb::Close),
            ["commit", _] => handle(Verb::Commit),
            ["persist", _] => handle(Verb::Persist),
            ["seal", _] => handle(Verb::Seal),
            ["stat", _] => handle(Verb::Stat),
            ["drop", h] => Command::Drop(h.into()),
            ["write", h, _, _, _] => Command::Write(h.into(), number(2)?, bytes(3)?),
            ["read", h, _, _] => Command::Read(h.into(), number(2)?, number(3)? as usize),
            ["append", h, _, _] => Command::Append(h.into(), bytes(2)?),
            ["truncate", h, _] => Command::Truncate(h.into(), number(2)?),
            ["put", h, key, _] => Command::Put(h.into(), key.into(), number(3)? as i64),
            ["get", h, key] => Command::Get(h.into(), key.into()),
            ["delete", name] => Command::Delete(Which::parse(name)?),
            ["rename", from, to] => Command::Rename(Name::new(from)?, Name::new(to)?),
            ["find", ref predicate @ ..] => Command::Find(predicate.join(" ")),
            ["wscommit"] => Command::WorkspaceCommit,
            ["effective", h] => Command::Effective(h.into()),
            ["reopen", ref rest @ ..] => Command::Reopen(rest.join(" ")),
            ["batch", policy, "/", ..] => {
                let on_error = match policy {
                    "rollback" => OnError::Rollback,
                    "stop" => OnError::Stop,
                    "continue" => OnError::Continue,
                    other => return Err(invalid(format!("the policy {other:?}"))),
                };
                let ops = line.split('/').skip(1).map(Command::parse).collect::<Result<_>>()?;
                Command::Batch(on_error, ops)
            }
            _ => return Err(invalid(format!("{line:?}"))),
        })
    }

    /// Does it, by blocking calls.
    pub(crate) fn run(&self, world: &World) -> Result<String> {
        match self {
            Command::Create(h, ..) | Command::Lookup(h, ..) => {
                let (out, op) = self.opening(world).ok_or_else(|| Error::new(Kind::Internal, "not an open"))?;
                run(&world.session, op)?;
                world.keep(h, out);
                Ok(String::new())
            }
            Command::Drop(h) => {
                world.forget(h);
                Ok(String::new())
            }
            Command::Write(h, offset, bytes) => {
                ioverbs::write_at(&world.handle(h)?, *offset, bytes).map(|()| String::new())
            }
            Command::Append(h, bytes) => ioverbs::append(&world.handle(h)?, bytes).map(|offset| offset.to_string()),
            Command::Read(h, offset, len) => {
                let mut buf = vec![0xee; *len];
                let n = ioverbs::read_at(&world.handle(h)?, *offset, &mut buf)?;
                Ok(data::runs(&buf[..n]))
            }
            Command::Find(predicate) => find(world, predicate),
            Command::Effective(h) => Ok(world.handle(h)?.effective()?.consistency.text().to_owned()),
            Command::Batch(on_error, ops) => batch(world, *on_error, ops),
            Command::Reopen(line) => {
                let ws = world.workspace.name().to_string();
                let other = World::open(world.session.url(), &ws, SessionAttr::default())?;
                let mut last = String::new();
                for command in line.split('&') {
                    last = Command::parse(command)?.run(&other)?;
                }
                Ok(last)
            }
            _ => {
                let done = run(&world.session, self.plain(world)?)?;
                if let Command::Handle(Verb::Close, h) = self {
                    world.forget(h);
                }
                Ok(output(&done.output))
            }
        }
    }

    fn opening(&self, world: &World) -> Option<(Collection, Op)> {
        let out = world.workspace.pending(EntryKind::Collection);
        let op = match self {
            Command::Create(_, name, controls) => Op::Create {
                out: out.clone(),
                parent: None,
                name: Some(name.clone()),
                metadata: Metadata::new(),
                controls: controls.clone(),
            },
            Command::Lookup(_, which, controls) => {
                Op::Open { out: out.clone(), parent: None, which: which.clone(), controls: controls.clone() }
            }
            _ => return None,
        };
        Some((out, op))
    }

    /// The operation of a command that needs no memory.
    fn plain(&self, world: &World) -> Result<Op> {
        let w = world.workspace.clone();
        Ok(match self {
            Command::Handle(verb, h) => {
                let c = world.handle(h)?;
                match verb {
                    Verb::Close => Op::Close { c },
                    Verb::Commit => Op::Commit { c },
                    Verb::Persist => Op::Persist { c },
                    Verb::Seal => Op::Seal { c },
                    Verb::Stat => Op::Stat { c },
                }
            }
            Command::Truncate(h, size) => Op::Truncate { c: world.handle(h)?, size: *size },
            Command::Put(h, key, value) => {
                let mut pairs = Metadata::new();
                pairs.set(key, Value::I64(*value))?;
                Op::MetaPut { c: world.handle(h)?, pairs }
            }
            Command::Get(h, key) => Op::MetaGet { c: world.handle(h)?, key: key.clone() },
            Command::Delete(which) => Op::Delete { w, parent: None, which: which.clone() },
            Command::Rename(from, to) => Op::Rename {
                w,
                from_parent: None,
                from: from.clone(),
                to_parent: None,
                to: to.clone(),
                mode: RenameMode::Replace,
            },
            Command::WorkspaceCommit => Op::WorkspaceCommit { w },
            _ => return Err(invalid("this in a batch")),
        })
    }
}

fn output(out: &Output) -> String {
    match out {
        Output::Offset(offset) => offset.to_string(),
        Output::Stat(stat) => format!("{} {:?}", stat.bytes, stat.state),
        Output::Value(Value::I64(n)) => n.to_string(),
        Output::Value(other) => format!("{other:?}"),
        _ => String::new(),
    }
}

fn find(world: &World, predicate: &str) -> Result<String> {
    let spec = SearchSpec {
        predicate: Some(predicate.to_owned()),
        params: vec![],
        group: None,
        deep: false,
        order: None,
        limit: 0,
        keys: vec![],
        count: false,
        names: false,
        page: 0,
    };
    let cursor = ioverbs::find(&world.workspace, spec)?;
    let mut names = Vec::new();
    loop {
        let page = cursor.next(256, -1)?;
        if page.is_empty() {
            break;
        }
        names.extend(page.into_iter().filter_map(|e| e.name).map(|n| n.to_string()));
    }
    names.sort();
    Ok(names.join(","))
}

fn batch(world: &World, on_error: OnError, commands: &[Command]) -> Result<String> {
    let mut reads: Vec<Vec<u8>> = commands
        .iter()
        .filter_map(|c| if let Command::Read(_, _, len) = c { Some(vec![0xee; *len]) } else { None })
        .collect();
    let mut buffers = reads.iter_mut();
    let mut ops: Vec<Lent<'_>> = Vec::new();
    for command in commands {
        ops.push(match command {
            Command::Write(h, offset, bytes) => Lent::Write { c: world.handle(h)?, offset: *offset, data: bytes },
            Command::Append(h, bytes) => Lent::Append { c: world.handle(h)?, data: bytes },
            Command::Read(h, offset, _) => {
                let buf = buffers.next().ok_or_else(|| Error::new(Kind::Internal, "no buffer"))?;
                Lent::Read { c: world.handle(h)?, offset: *offset, buf }
            }
            Command::Create(h, ..) | Command::Lookup(h, ..) => {
                let (out, op) = command.opening(world).ok_or_else(|| Error::new(Kind::Internal, "not an open"))?;
                world.keep(h, out);
                op.into()
            }
            other => other.plain(world)?.into(),
        });
    }
    let attr = BatchAttr { on_error: Some(on_error), ..BatchAttr::default() };
    let statuses = run_batch(&world.session, attr, ops)?;
    let mut reads = reads.into_iter();
    let mut out = Vec::new();
    for (command, status) in commands.iter().zip(statuses) {
        let text = match command {
            Command::Read(..) => {
                reads.next().map(|buf| data::runs(&buf[..buf.len().min(status.bytes as usize)])).unwrap_or_default()
            }
            _ => output(&status.output),
        };
        out.push(answer(status.result().map(|()| text)).replace('/', " "));
    }
    Ok(out.join(" / "))
}
