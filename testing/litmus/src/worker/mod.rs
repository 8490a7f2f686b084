//! What a worker process does: one line in, one line out.
//!
//! An answer is `ok RESULT` or `err KIND CLAUSE DETAIL`. [`command`] has the commands, [`schedule`] those that run others.

mod command;
pub mod data;
mod fork;
mod schedule;

use std::{
    collections::HashMap,
    io::{BufRead, Write},
    sync::{Arc, Mutex, PoisonError, mpsc},
};

use ioverbs::{Collection, Error, Kind, Result, Session, SessionAttr, Which, Workspace, open, seam};

pub(crate) use command::Command;

/// The store as a worker sees it.
pub(crate) struct World {
    pub(crate) session: Session,
    pub(crate) workspace: Workspace,
    handles: Mutex<HashMap<String, Collection>>,
}

impl World {
    pub(crate) fn open(url: &str, workspace: &str, attr: SessionAttr) -> Result<World> {
        let session = open(Some(url), attr)?;
        let workspace = session.load_workspace(Which::parse(workspace)?)?;
        Ok(World { session, workspace, handles: Mutex::default() })
    }

    pub(crate) fn handle(&self, name: &str) -> Result<Collection> {
        let handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        handles.get(name).cloned().ok_or_else(|| Error::new(Kind::Invalid, format!("no handle {name}")))
    }

    pub(crate) fn keep(&self, name: &str, c: Collection) {
        let old = self.handles.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), c);
        drop(old);
    }

    pub(crate) fn forget(&self, name: &str) {
        let old = self.handles.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        drop(old);
    }
}

/// An answer as one line.
pub(crate) fn answer(result: Result<String>) -> String {
    match result {
        Ok(text) => format!("ok {text}").trim_end().to_owned(),
        Err(e) => {
            let clause = e.clause().map_or_else(|| "-".to_owned(), |c| format!("{c:?}"));
            format!("err {:?} {clause} {:?}: {}", e.kind(), e.outcome(), e.detail()).replace(['\n', '|', ';'], " ")
        }
    }
}

/// Says a line to the parent. A parent that has gone needs nothing more.
pub(crate) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Obeys until standard input ends. Arguments: the store, the workspace, and flags of the session.
pub fn run() {
    let mut args = std::env::args().skip(1);
    let (url, workspace) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    let mut attr = SessionAttr::default();
    for flag in args {
        match flag.as_str() {
            "nodirect" => attr.nodirect = true,
            "nostart" => attr.nostart = true,
            other => return say(&answer(Err(Error::new(Kind::Invalid, format!("no flag {other}"))))),
        }
    }
    let world = match World::open(&url, &workspace, attr) {
        Ok(world) => Arc::new(world),
        Err(e) => return say(&answer(Err(e))),
    };
    say("ok");
    let (to, lines) = mpsc::channel();
    let reader = seam::spawn("lines", move || {
        for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
            if to.send(line).is_err() {
                return;
            }
        }
    });
    if reader.is_err() {
        return say("err Internal - no thread");
    }
    while let Ok(line) = lines.recv() {
        say(&answer(schedule::obey(&world, &line, &lines)));
    }
}
