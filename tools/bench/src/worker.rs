//! Worker processes: the same executable, told by arguments what to do, started all at once by a line on standard input.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The hidden subcommand of `iov` that runs a worker.
pub const WORKER_COMMAND: &str = "bench-worker";

/// A started worker. It runs its steps one after the other, each when it is told to.
pub(crate) struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts a worker and waits until it has set itself up.
    pub(crate) fn start(args: &[String]) -> Result<Worker> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(WORKER_COMMAND)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("a worker process cannot be started")?;
        let output = BufReader::new(child.stdout.take().context("a worker without output")?);
        let input = child.stdin.take();
        let mut worker = Worker { child, input, output };
        worker.read()?;
        Ok(worker)
    }

    fn read(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            bail!("a worker process died: {}", self.child.wait()?);
        }
        let value: Value = serde_json::from_str(&line).with_context(|| format!("a worker said {line:?}"))?;
        if let Some(e) = value.get("error") {
            bail!("a worker failed: {e}");
        }
        Ok(value)
    }

    /// Tells it to run its next step.
    pub(crate) fn go(&mut self, step: &str) -> Result<()> {
        let input = self.input.as_mut().context("the worker was ended")?;
        writeln!(input, "{step}").and_then(|()| input.flush()).context("a worker is gone")
    }

    /// Waits for the end of the step: its JSON line.
    pub(crate) fn done(&mut self) -> Result<Value> {
        self.read()
    }

    /// Ends it.
    pub(crate) fn end(mut self) -> Result<()> {
        self.input = None;
        let status = self.child.wait()?;
        if !status.success() {
            bail!("a worker ended with {status}");
        }
        Ok(())
    }
}

/// Runs one step on several workers at once; seconds of the slowest, and what each said.
pub(crate) fn step(workers: &mut [Worker], step: &str) -> Result<(f64, Vec<Value>)> {
    for worker in workers.iter_mut() {
        worker.go(step)?;
    }
    let said = workers.iter_mut().map(Worker::done).collect::<Result<Vec<_>>>()?;
    let from = said.iter().filter_map(|v| v["from"].as_f64()).fold(f64::INFINITY, f64::min);
    let to = said.iter().filter_map(|v| v["to"].as_f64()).fold(0.0, f64::max);
    Ok((to - from, said))
}

/// Seconds on the monotonic clock, the same for all processes.
pub(crate) fn clock() -> f64 {
    ioverbs::seam::monotonic_ns() as f64 / 1e9
}

/// Runs the steps that come on standard input with `run`, which returns counters.
pub(crate) fn serve(mut run: impl FnMut(&str) -> Result<Value>) -> Result<()> {
    println!("{{}}");
    std::io::stdout().flush()?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let from = clock();
        let mut said = match run(&line) {
            Ok(said) => said,
            Err(e) => serde_json::json!({ "error": format!("{e:#}") }),
        };
        if said.get("from").is_none() {
            said["from"] = from.into();
            said["to"] = clock().into();
        }
        println!("{said}");
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// Runs a worker process.
pub fn worker(args: &[String]) -> Result<()> {
    match args.split_first().map(|(role, rest)| (role.as_str(), rest)) {
        Some(("bare-net", rest)) => crate::net::bare_worker(rest),
        Some(("data", rest)) => crate::data::worker(rest),
        Some(("meta", rest)) => crate::meta::worker(rest),
        Some(("net", rest)) => crate::net::worker(rest),
        Some(("plain-meta", rest)) => crate::ceiling::meta_worker(rest),
        _ => bail!("a benchmark worker is started by `iov bench`, not by hand"),
    }
}
