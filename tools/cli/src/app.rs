//! From arguments to an exit code.

use std::{
    ffi::OsString,
    io::{BufWriter, IsTerminal, Read},
    process::ExitCode,
};

use clap::{Parser, error::ErrorKind};
use ioverbs::{Counters, Error, Kind};
use serde_json::json;

use crate::{
    advice::advice,
    cli::Cli,
    ctx::Ctx,
    failure::{Failure, USAGE},
    interrupt::Interrupt,
    output::{Out, quoted},
};

/// The program.
pub(crate) fn main() -> ExitCode {
    crate::commands::mount::begin();
    if let Some(code) = crate::commands::bench::worker() {
        return code;
    }
    let (stdout, stderr) = (std::io::stdout(), std::io::stderr());
    let terminals = (stdout.is_terminal(), stderr.is_terminal());
    let out = Out::new(Box::new(BufWriter::with_capacity(64 << 10, stdout)), terminals.0);
    let err = Out::new(Box::new(stderr), terminals.1);
    let Some(args) = crate::habits::translate(std::env::args_os().collect()) else { return ExitCode::SUCCESS };
    let code = run(args, out, err, Box::new(std::io::stdin()), |cli| cli.command.interrupt());
    ExitCode::from(code)
}

/// One command line, with streams of its own; `stop`: what may stop such a command.
pub(crate) fn run(
    args: impl IntoIterator<Item = OsString>,
    out: Out,
    err: Out,
    stdin: Box<dyn Read + Send>,
    stop: impl FnOnce(&Cli) -> Interrupt,
) -> u8 {
    let args: Vec<OsString> = args.into_iter().collect();
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(e) => return usage(&e, &args, out, err),
    };
    let mut ctx = Ctx::new(cli.global.clone(), out, err, stdin, stop(&cli));
    let done = cli.command.run(&mut ctx).and_then(|()| ctx.end()).and_then(|()| ctx.out.flush());
    if cli.global.stats {
        print_counters(&mut ctx);
    }
    match done {
        Ok(()) => 0,
        Err(failure) => {
            // What was found before the failure is still worth having.
            let _ = ctx.out.flush();
            if let Failure::Error { error, next } = &failure {
                print_error(&mut ctx, error, next.as_deref());
            }
            failure.code()
        }
    }
}

/// Tells of a command line that cannot be read, or shows the help that it asks for.
fn usage(e: &clap::Error, args: &[OsString], mut out: Out, mut err: Out) -> u8 {
    let asked = matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    // The option was not read, as nothing was; behind `--` there are none.
    let json = args.iter().take_while(|arg| *arg != "--").any(|arg| arg == "--json");
    let stream = if asked { &mut out } else { &mut err };
    // Where even that cannot be told, the exit code remains.
    let _ = if json && !asked {
        let text = e.render().to_string();
        let text = text.strip_prefix("error: ").unwrap_or(&text);
        // What is wrong stands before the usage, which `iov help` has too.
        let lines = text.lines().take_while(|line| !line.starts_with("Usage:")).map(str::trim);
        let detail = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ").replace(":; ", ": ");
        let error = Error::invalid(detail);
        stream.line(as_json(&error, advice(&error)))
    } else {
        let text = if stream.is_terminal() { e.render().ansi().to_string() } else { e.render().to_string() };
        stream.bytes(text.as_bytes())
    };
    let _ = stream.flush();
    if asked { 0 } else { USAGE }
}

/// Advice with commands that mean the same store as this one; help is the same everywhere.
fn on_store(next: &str, store: Option<&str>) -> String {
    let Some(store) = store else { return next.to_owned() };
    let mut text = String::new();
    for (i, part) in next.split("iov ").enumerate() {
        if i > 0 {
            text.push_str("iov ");
            let begins = text.len() == 4 || text[..text.len() - 4].ends_with([' ', '`']);
            if begins && !part.starts_with("help") {
                text.push_str(&format!("-S {} ", quoted(store.as_bytes())));
            }
        }
        text.push_str(part);
    }
    text
}

/// An error as one object.
fn as_json(error: &Error, next: &str) -> serde_json::Value {
    json!({
        "error": error.kind().c_name(),
        "code": error.kind().code(),
        "clause": error.clause().map(|c| c.id()),
        "outcome": error.outcome().text(),
        "detail": error.detail(),
        "next": next,
    })
}

/// Says what went wrong, by which promise, and what to do now.
pub(crate) fn print_error(ctx: &mut Ctx, error: &Error, next: Option<&str>) {
    let kind = error.kind();
    let next = on_store(next.unwrap_or_else(|| advice(error)), ctx.global.store.as_deref());
    let short = kind.c_name().trim_start_matches("IOV_");
    if ctx.global.json {
        let _ = ctx.err.line(as_json(error, &next));
        return;
    }
    let clause = error.clause().map_or(String::new(), |c| format!(", clause {c}"));
    // An error about a predicate shows the place in further lines.
    let mut lines = error.detail().lines().map(|line| crate::output::printable(line.as_bytes()));
    let first = lines.next().unwrap_or_default();
    // Where standard error is gone nobody can be told; the exit code remains.
    let _ = ctx.err.line(format_args!("iov: {first} ({}{clause})", kind.c_name()));
    for line in lines {
        let _ = ctx.err.line(line);
    }
    if kind != Kind::Cancelled {
        let _ = ctx.err.line(format_args!("  next: {next}"));
        let _ = ctx.err.line(format_args!("  more: iov help {short}"));
    }
}

/// What the session has counted, without what it never used.
pub(crate) fn counted(ctx: &Ctx) -> Vec<(&'static str, u64)> {
    let Some(session) = ctx.opened() else { return Vec::new() };
    Counters::NAMES.iter().copied().zip(session.counters().snapshot()).filter(|(_, n)| *n > 0).collect()
}

fn print_counters(ctx: &mut Ctx) {
    let counted = counted(ctx);
    // A lost line of statistics is no failure of the command.
    if ctx.global.json {
        let all: serde_json::Map<_, _> = counted.into_iter().map(|(name, n)| (name.to_owned(), json!(n))).collect();
        let _ = ctx.err.line(json!({ "counters": all }));
        return;
    }
    for (name, n) in counted {
        let _ = ctx.err.line(format_args!("{name:<20} {n}"));
    }
}
