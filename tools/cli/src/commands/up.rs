//! `iov up`: a store on this machine, ready to be used.

use ioverbs::{Error, StoreSetup};
use serde_json::json;

use crate::{
    ctx::Ctx,
    failure::{Done, Next},
    quantity,
};

/// Make a store on this machine, or bring it up again
///
/// Its bytes lie in files, or in shared memory: then they are as fast as memory, and gone when the machine ends or with
/// `iov down`. A daemon that this starts runs until `iov down`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Where a new store keeps its bytes: files (in its directory), files:DIR (in another one; both also with ,io=direct or
    /// ,io=uring, past the kernel's cache), shmem:SIZE, as in shmem:2GiB (shared memory), heap:SIZE (the daemon's own memory: gone when that ends),
    /// virtual:LIBRARY[,CONFIGURATION] (a backend that is loaded), or null (nowhere: to see what all the rest costs). Of a store
    /// that is there, its new size or way. Several times for several targets (iov targets, iov pattern)
    #[arg(long, value_name = "WHAT")]
    storage: Vec<String>,

    /// The store's directory; the same as -S file:DIR
    #[arg(long, value_name = "DIR")]
    dir: Option<String>,

    /// Record every call to where the bytes lie in this file, which `iov trace show` reads, until the daemon ends. Meanwhile all
    /// bytes go through it
    #[arg(long, value_name = "FILE")]
    trace: Option<std::path::PathBuf>,

    /// Serve programs on other hosts too: HOST[:PORT] of this machine, or several, the preferred one first; port 0 takes one
    /// that is free. They open iov://HOST:PORT, with a copy of the store's secret
    #[arg(long, value_name = "HOST[:PORT],…")]
    listen: Option<String>,

    /// Make no store, but serve targets of the one whose `iov up --listen` names this HOST[:PORT], with a copy of its secret. It
    /// listens on the address of this machine that leads there, unless --listen says another one
    #[arg(long, value_name = "HOST[:PORT],…")]
    join: Option<String>,

    /// What fails together with these targets, as a rack or a power supply; this machine, unless said
    #[arg(long, value_name = "NAME", requires = "join")]
    domain: Option<String>,

    /// The file of the secret that those programs must have, or none to let in whoever reaches the port; else the file named
    /// secret in the store's directory, which is made if there is none (with --join it is found where programs find theirs)
    #[arg(long, value_name = "FILE")]
    secret: Option<std::path::PathBuf>,

    /// Speak only TLS with those programs: by a certificate and its key, in files, or by one of the store's own (self), which is
    /// made if there is none. They name it, or the certificate of the CA that has signed it, in IOVERBS_TLS
    #[arg(long, value_name = "CERT.pem,KEY.pem|self")]
    tls: Option<String>,

    /// End the daemon after so long without a connection; it starts again when it is needed
    #[arg(long, value_name = "TIME")]
    idle: Option<String>,
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    if let Some(dir) = &args.dir {
        if ctx.global.store.is_some() {
            return Err(Error::invalid("--dir and -S name the store twice: give one").into());
        }
        let absolute = std::path::absolute(dir).map_err(Error::from)?;
        ctx.global.store = Some(format!("file:{}", absolute.display()));
    }
    if (args.secret.is_some() || args.tls.is_some()) && args.listen.is_none() && args.join.is_none() {
        return Err(Error::invalid(
            "--secret and --tls say how others reach the store: they go with --listen or --join",
        )
        .into());
    }
    let url = ctx.url()?;
    let idle_s = match &args.idle {
        Some(text) => quantity::read_span(text)?.unsigned_abs().div_ceil(1_000_000_000),
        None => 0,
    };
    let timeout = ctx.timeout_ns()?;
    let before = ioverbs::daemon_status_within(&url, timeout);
    let runs = match before {
        Ok(facts) => facts.is_some(),
        // There is no directory yet.
        Err(e) if e.kind() == ioverbs::Kind::NotFound => false,
        Err(e) => return Err(e.into()),
    };
    let told = [args.trace.is_some(), args.join.is_some(), args.listen.is_some(), !args.storage.is_empty()];
    if let Some(what) = told.iter().position(|told| *told).filter(|_| runs) {
        let what =
            ["a trace can be begun", "it can join a store", "it can be told to listen", "its storage can be set"][what];
        return Err(Error::busy(format!("{url} is up: {what} when it is not, behind iov down --keep")))
            .next(|| "iov down --keep, then this command again".into());
    }
    if !runs {
        let setup = StoreSetup {
            storage: args.storage.clone(),
            trace: args.trace.clone(),
            listen: args.listen.clone(),
            join: args.join.clone(),
            domain: args.domain.clone(),
            secret: args.secret.clone(),
            tls: args.tls.clone(),
            idle_s: Some(idle_s),
        };
        ioverbs::daemon_start(&url, &setup, timeout)?;
    }
    let facts = ioverbs::daemon_status_within(&url, timeout)?.unwrap_or_default();
    if facts.iter().any(|(name, _)| name == "catalog_silent_ns") {
        return joined(ctx, &url, runs, &facts);
    }
    let of = |what: &str| facts.iter().find(|(name, _)| name == what).map(|(_, bytes)| *bytes);
    let medium = ioverbs::daemon_medium_within(&url, timeout)?.unwrap_or_default();
    let addresses = ioverbs::daemon_addresses_within(&url, timeout)?.unwrap_or_default();
    let (shm, heap) = (of("shm_capacity_bytes"), of("heap_capacity_bytes"));
    if ctx.global.json {
        let facts = json!({
            "store": url, "started": !runs, "medium": medium, "shm_capacity_bytes": shm, "heap_capacity_bytes": heap,
            "addresses": addresses,
        });
        return ctx.out.line(facts);
    }
    let medium = match shm.or(heap) {
        Some(bytes) => format!("{} of {medium}", quantity::human(bytes)),
        None => medium.into(),
    };
    // The sizes are those of the first.
    let medium = match of("targets") {
        Some(n) if n > 1 => format!("{n} targets, which iov targets lists"),
        _ => medium,
    };
    let what = if runs { "is up already" } else { "is up" };
    ctx.out.line(format_args!("{url} {what}, with {medium}\n  next: export IOVERBS_URL={url}"))?;
    if addresses.is_empty() {
        return Ok(());
    }
    let dir = url.strip_prefix("file:").unwrap_or_default();
    // As the daemon has written it down, whoever started it.
    let listens = std::fs::read_to_string(std::path::Path::new(dir).join("listen")).unwrap_or_default();
    let named = listens.lines().find_map(|line| line.strip_prefix("secret "));
    let secret = if listens.lines().any(|line| line == "no secret") { "?secret=none" } else { "" };
    // Whatever a name was that was given, no other host comes here by it.
    let loops = addresses.iter().all(|address| is_loopback(address));
    let from = if loops { "from this host alone (name another address of it for others)" } else { "from other hosts" };
    ctx.out.line(format_args!("  {from}: export IOVERBS_URL=iov://{}{secret}", addresses.join(",")))?;
    if secret.is_empty() {
        let file = named.map_or_else(|| std::path::Path::new(dir).join("secret"), std::path::PathBuf::from);
        ctx.out.line(format_args!("  with a copy of {}, named in IOVERBS_SECRET", file.display()))?;
    }
    if listens.lines().any(|line| line == "tls self") {
        let file = std::path::Path::new(dir).join("tls.cert");
        ctx.out.line(format_args!("  by TLS, with a copy of {}, named in IOVERBS_TLS", file.display()))?;
    } else if let Some(file) = listens.lines().find_map(|line| line.strip_prefix("certificate ")) {
        let what = "named in IOVERBS_TLS, or that of the CA that has signed it";
        ctx.out.line(format_args!("  by TLS, with a copy of {file}, {what}"))?;
    }
    Ok(())
}

/// Whether an address, as `HOST:PORT`, leads to the machine itself wherever it is used.
fn is_loopback(address: &str) -> bool {
    address.parse::<std::net::SocketAddr>().is_ok_and(|address| address.ip().is_loopback())
}

/// Of a daemon that serves targets of another one's store.
fn joined(ctx: &mut Ctx, url: &str, runs: bool, facts: &[(String, u64)]) -> Done {
    let addresses = ioverbs::daemon_addresses_within(url, ctx.timeout_ns()?)?.unwrap_or_default();
    let targets = facts.iter().find(|(name, _)| name == "targets").map_or(0, |(_, n)| *n);
    if ctx.global.json {
        let facts =
            json!({ "directory": url, "started": !runs, "joined": true, "targets": targets, "addresses": addresses });
        return ctx.out.line(facts);
    }
    let what = if runs { "is up already" } else { "is up" };
    let n = if targets == 1 { "one target".to_owned() } else { format!("{targets} targets") };
    ctx.out.line(format_args!("{url} {what}: {n} for the store that it has joined, at {}", addresses.join(",")))?;
    ctx.out.line("  next: iov targets, where the store is used")
}
