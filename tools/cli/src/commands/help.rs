//! `iov help`: commands, errors, clauses, controls.

use clap::CommandFactory;
use ioverbs::{Clause, Error, Kind};
use serde_json::json;

use crate::{
    advice::advice,
    cli::Cli,
    ctx::Ctx,
    failure::{self, Done, Next},
};

/// The clauses, as the documents have them.
const CLAUSES: &str = include_str!("../../../../docs/semantics/clauses.md");
/// The controls, likewise.
const CONTROLS: &str = include_str!("../../../../docs/semantics/controls.md");

/// Explain a command, an error, a clause, or the controls
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// A command such as put or "ws create"; an error such as EBUSY or 1024; a clause such as C3; or: controls, errors
    topic: Vec<String>,
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    // Several words may come as one.
    let topic: Vec<String> = args.topic.iter().flat_map(|words| words.split_whitespace().map(str::to_owned)).collect();
    let [first, rest @ ..] = &topic[..] else {
        return command(ctx, &[]);
    };
    if rest.is_empty() {
        if let Some(kind) = kind(first) {
            return error(ctx, kind);
        }
        if let Some(clause) = Clause::from_id(&first.to_uppercase()) {
            return clause_text(ctx, clause);
        }
        match first.as_str() {
            "controls" => return ctx.out.line(CONTROLS.trim_end()),
            "errors" => return errors(ctx),
            _ => {}
        }
    }
    command(ctx, &topic)
}

/// The kind of `EBUSY`, `IOV_EBUSY`, `Busy`, `1024` or `-1024`.
fn kind(word: &str) -> Option<Kind> {
    if let Ok(code) = word.parse::<i32>() {
        return Kind::from_code(code);
    }
    let upper = word.to_uppercase();
    let short = upper.strip_prefix("IOV_").unwrap_or(&upper);
    Kind::ALL.iter().copied().find(|k| k.c_name() == format!("IOV_{short}"))
}

/// The clauses that usually stand behind an error.
fn clauses(kind: Kind) -> &'static [Clause] {
    match kind {
        Kind::Refused => &[Clause::B3, Clause::P3, Clause::P4, Clause::M1],
        Kind::NotFound | Kind::Exists | Kind::NotEmpty => &[Clause::O3],
        Kind::Busy => &[Clause::X1, Clause::X2, Clause::O11],
        Kind::Denied => &[Clause::A1, Clause::A2],
        Kind::Immutable => &[Clause::M2, Clause::M4],
        Kind::Stale => &[Clause::O10, Clause::B3],
        Kind::Fenced => &[Clause::X1],
        Kind::Timeout | Kind::Cancelled => &[Clause::O8],
        Kind::Partial => &[Clause::O7, Clause::B1],
        Kind::Exhausted => &[Clause::O1],
        Kind::TooBig => &[Clause::B4],
        Kind::FileTooBig => &[Clause::H1],
        Kind::Corrupt => &[Clause::I1],
        Kind::Lost => &[Clause::P1],
        Kind::Invalid
        | Kind::Unsupported
        | Kind::Version
        | Kind::Forked
        | Kind::Conflict
        | Kind::Unavailable
        | Kind::Internal => &[],
    }
}

/// The text of a clause, without its marks.
fn text_of(clause: Clause) -> Option<String> {
    let row = CLAUSES.lines().find_map(|line| line.strip_prefix(&format!("| {clause} | ")))?;
    Some(row.trim_end_matches(" |").replace("**", "").replace('`', ""))
}

fn error(ctx: &mut Ctx, kind: Kind) -> Done {
    let clauses = clauses(kind);
    if ctx.global.json {
        let clauses: Vec<_> = clauses.iter().map(|c| json!({ "id": c.id(), "text": text_of(*c) })).collect();
        return ctx.out.line(json!({
            "error": kind.c_name(), "code": kind.code(), "errno": kind.errno(), "http": kind.http(),
            "exit_code": failure::code(kind), "text": kind.text(), "next": next(kind), "clauses": clauses,
        }));
    }
    let (code, errno, exit) = (kind.code(), kind.errno(), failure::code(kind));
    ctx.out.line(format_args!("{} ({code}; in POSIX errno {errno}; iov exits with {exit})\n", kind.c_name()))?;
    ctx.out.line(wrapped(kind.text(), 0))?;
    ctx.out.line(wrapped(&format!("With iov: {}.", next(kind)), 0))?;
    for clause in clauses {
        ctx.out.line(format_args!("\n{clause}"))?;
        ctx.out.line(wrapped(&text_of(*clause).unwrap_or_default(), 4))?;
    }
    Ok(())
}

/// What to do about it on the command line.
fn next(kind: Kind) -> &'static str {
    let error = Error::new(kind, "");
    match clauses(kind) {
        [first, ..] => advice(&error.with_clause(*first)),
        [] => advice(&error),
    }
}

fn errors(ctx: &mut Ctx) -> Done {
    for kind in Kind::ALL {
        ctx.out.line(format_args!("{:<18} {}  {}", kind.c_name(), kind.code(), kind.text()))?;
    }
    Ok(())
}

fn clause_text(ctx: &mut Ctx, clause: Clause) -> Done {
    let text = text_of(clause).ok_or_else(|| Error::internal(format!("the clause {clause} has no text")))?;
    if ctx.global.json {
        return ctx.out.line(json!({ "clause": clause.id(), "text": text }));
    }
    ctx.out.line(format_args!("{clause}\n{}", wrapped(&text, 4)))
}

/// The same help that `iov COMMAND --help` shows.
fn command(ctx: &mut Ctx, path: &[String]) -> Done {
    let mut top = Cli::command();
    top.build();
    let mut at = &mut top;
    for word in path {
        at = match at.find_subcommand_mut(word) {
            Some(below) => below,
            None => {
                let error = Error::not_found(format!("{word:?} is no command, no error, no clause and no topic"));
                return Err(error).next(|| "iov help lists the commands, iov help errors the errors".into());
            }
        };
    }
    let text = at.render_long_help();
    let text = if ctx.out.is_terminal() { text.ansi().to_string() } else { text.to_string() };
    ctx.out.bytes(text.as_bytes())
}

/// Lines of about 96 characters.
fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && indent + line.chars().count() + 1 + word.chars().count() > 96 {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines.iter().map(|l| format!("{:indent$}{l}", "")).collect::<Vec<_>>().join("\n")
}
