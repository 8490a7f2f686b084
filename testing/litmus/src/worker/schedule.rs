//! Commands that run others: at a time, many times, in threads, in a forked child.
//!
//! `many | COMMAND ; COMMAND …` answers all, separated by `;`. `all | …` stops at the first that fails, `insist | …` first
//! repeats what did not reach the store.
//!
//! In their commands `{i}` is the round, `{b}` the round as a byte from 1 to 250, `{o}` 4,096 times the round, `{m}`
//! 1 MiB times the round, `{t}` the thread.

use std::sync::{
    Arc,
    mpsc::{Receiver, TryRecvError},
};

use ioverbs::{Error, Kind, Result, seam};

use super::{Command, World, answer, fork, say};

/// Obeys one line.
pub(crate) fn obey(world: &Arc<World>, line: &str, lines: &Receiver<String>) -> Result<String> {
    let (head, body) = line.split_once('|').unwrap_or((line, ""));
    let words: Vec<&str> = head.split_whitespace().collect();
    let number = |at: usize| -> Result<u64> {
        let found = words.get(at).and_then(|w| w.parse().ok());
        found.ok_or_else(|| Error::new(Kind::Invalid, format!("word {at} of {line:?} is no number")))
    };
    match words[..] {
        ["race", _, _, _] => race(world, number(1)?, number(2)? as i64, number(3)? as i64, body),
        ["repeat", _] => race(world, number(1)?, 0, 0, body),
        ["stream"] => stream(world, body, lines),
        ["watch"] => watch(world, body, lines),
        ["threads", _, _] => threads(world, number(1)?, number(2)?, body),
        ["fork"] => fork::run(world, &Command::parse(body)?),
        ["many"] => Ok(steps(body, 0, 0)?.iter().map(|c| answer(c.run(world))).collect::<Vec<_>>().join(";")),
        ["all"] => steps(body, 0, 0)?.iter().try_fold(String::new(), |_, c| c.run(world)),
        ["insist"] => steps(body, 0, 0)?.iter().try_fold(String::new(), |_, c| insist(world, c)),
        _ => Command::parse(line)?.run(world),
    }
}

/// Repeats a command while the store cannot be reached, as the error advises.
fn insist(world: &World, command: &Command) -> Result<String> {
    let mut left = 20;
    loop {
        match command.run(world) {
            Err(e) if e.kind() == Kind::Unavailable && left > 0 => left -= 1,
            other => return other,
        }
    }
}

/// The commands of one round.
fn steps(body: &str, round: u64, thread: u64) -> Result<Vec<Command>> {
    let fill = |text: &str| {
        text.replace("{i}", &round.to_string())
            .replace("{b}", &(round % 250 + 1).to_string())
            .replace("{o}", &(round * 4096).to_string())
            .replace("{m}", &(round << 20).to_string())
            .replace("{t}", &thread.to_string())
    };
    body.split(';').map(|step| Command::parse(&fill(step))).collect()
}

/// Sleeps, then spins: two processes that wait for the same instant begin within a microsecond of each other.
fn wait_until(ns: i64) {
    loop {
        match ns - seam::monotonic_ns() {
            left if left <= 0 => return,
            left if left > 300_000 => seam::sleep(left as u64 - 200_000),
            _ => std::hint::spin_loop(),
        }
    }
}

/// `race ROUNDS BEGIN PERIOD | COMMAND ; COMMAND`: round i begins at BEGIN + i × PERIOD of the monotonic clock, in
/// nanoseconds. Answers are separated by `;`, rounds by `|`.
fn race(world: &World, rounds: u64, begin: i64, period: i64, body: &str) -> Result<String> {
    let all = (0..rounds).map(|i| steps(body, i, 0)).collect::<Result<Vec<_>>>()?;
    let mut out = Vec::with_capacity(all.len());
    for (i, steps) in all.iter().enumerate() {
        if period > 0 {
            wait_until(begin + i as i64 * period);
        }
        let answers: Vec<String> = steps.iter().map(|c| answer(c.run(world))).collect();
        out.push(answers.join(";"));
    }
    Ok(out.join("|"))
}

/// `stream | COMMANDS`: again and again until another line comes; each round is told before the next one begins, as
/// `ack ROUND ANSWERS`.
fn stream(world: &World, body: &str, lines: &Receiver<String>) -> Result<String> {
    for i in 0.. {
        if !matches!(lines.try_recv(), Err(TryRecvError::Empty)) {
            break;
        }
        let answers: Vec<String> = steps(body, i, 0)?.iter().map(|c| answer(c.run(world))).collect();
        say(&format!("ack {i} {}", answers.join(";")));
    }
    Ok(String::new())
}

/// `watch | COMMANDS`: again and again until another line comes. The answer is the number of rounds and, separated by
/// `|`, those that differ from the round before.
fn watch(world: &World, body: &str, lines: &Receiver<String>) -> Result<String> {
    let commands = steps(body, 0, 0)?;
    let mut seen: Vec<String> = Vec::new();
    let mut rounds = 0u64;
    say("watching");
    loop {
        let last = !matches!(lines.try_recv(), Err(TryRecvError::Empty));
        let answers: Vec<String> = commands.iter().map(|c| answer(c.run(world))).collect();
        let round = answers.join(";");
        rounds += 1;
        if seen.last() != Some(&round) {
            seen.push(round);
        }
        // One whole round after the end was asked for: it sees what was there by then.
        if last {
            return Ok(format!("{rounds}|{}", seen.join("|")));
        }
    }
}

/// `threads THREADS ROUNDS | COMMANDS`: the answers that are not `ok`, if any.
fn threads(world: &Arc<World>, threads: u64, rounds: u64, body: &str) -> Result<String> {
    let mut running = Vec::new();
    for t in 0..threads {
        let all = (0..rounds).map(|i| steps(body, i, t)).collect::<Result<Vec<_>>>()?;
        let world = world.clone();
        let work = move || -> Vec<String> {
            let answers = all.iter().flatten().map(|c| answer(c.run(&world)));
            answers.filter(|a| !a.starts_with("ok")).collect()
        };
        let (to, from) = std::sync::mpsc::channel();
        let spawned = seam::spawn("writer", move || drop(to.send(work())));
        spawned.map_err(|e| Error::new(Kind::Exhausted, format!("no thread: {e}")))?;
        running.push(from);
    }
    let mut wrong = Vec::new();
    for from in running {
        wrong.extend(from.recv().map_err(|_| Error::new(Kind::Internal, "a thread died"))?);
    }
    match wrong.first() {
        None => Ok(String::new()),
        Some(first) => Err(Error::new(Kind::Partial, format!("{} failed, the first with {first}", wrong.len()))),
    }
}
