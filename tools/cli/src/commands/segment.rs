//! `iov segment`: bytes that have an identity and nothing else.

use std::{
    io::{Read, Write},
    path::{Path, PathBuf},
};

use clap::Subcommand;
use ioverbs::{Error, Kind, Segments, Uuid};
use serde_json::json;

use crate::{
    address::Address,
    ctx::Ctx,
    failure::{Done, local},
    modes,
    options::ControlArgs,
    quantity::{self, Span},
    transfer::{
        download::{Part, Way, open_stream},
        upload::Pieces,
    },
};

/// Make, fill, read and remove segments: bytes with an id instead of a name
///
/// For programs that keep their own account of what is where, as of memory. `iov segment write` and `read` see a workspace as an
/// endless space: any id can be written at any offset, and what nobody has written is zeros.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

/// What to do with segments.
#[derive(Subcommand, Debug)]
enum What {
    /// Make a segment, all zeros, with its space reserved, and print its id
    Create {
        /// The workspace
        #[arg(value_parser = Address::parser())]
        ws: Address,
        /// How large, as in 64MiB
        size: String,
        #[command(flatten)]
        controls: ControlArgs,
    },
    /// List the segments of a workspace: size and id
    #[command(visible_alias = "list")]
    Ls {
        /// The workspace
        #[arg(value_parser = Address::parser())]
        ws: Address,
        /// Sizes in bytes
        #[arg(long)]
        bytes: bool,
    },
    /// Print how many bytes a segment has
    Size {
        /// The workspace
        #[arg(value_parser = Address::parser())]
        ws: Address,
        /// Which one
        id: String,
    },
    /// Store a file in a segment; beyond its end nothing can be stored
    Put(Store),
    /// Read a segment, or a part of it
    Get(Fetch),
    /// Store a file under any id, and make what is not there
    Write(Store),
    /// Read under any id: what nobody has written is zeros
    Read(Fetch),
    /// Remove segments
    Rm {
        /// The workspace
        #[arg(value_parser = Address::parser())]
        ws: Address,
        /// Which ones
        #[arg(required = true)]
        ids: Vec<String>,
    },
}

#[derive(clap::Args, Debug)]
struct Store {
    /// The workspace
    #[arg(value_parser = Address::parser())]
    ws: Address,
    /// Which segment
    id: String,
    /// The file; - = standard input
    file: PathBuf,
    /// Where it begins in the segment
    #[arg(long, value_name = "OFFSET", default_value = "0")]
    at: String,
}

#[derive(clap::Args, Debug)]
struct Fetch {
    /// The workspace
    #[arg(value_parser = Address::parser())]
    ws: Address,
    /// Which segment
    id: String,
    /// Where to; - or nothing = standard output
    file: Option<PathBuf>,
    /// Only a part: FROM..TO, FROM.., ..TO or FROM+LENGTH, as in 1MiB+4KiB
    #[arg(long)]
    range: Option<String>,
}

/// Bytes moved at once.
const PIECE: usize = 4 << 20;

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    match &args.what {
        What::Create { ws, size, controls } => {
            let id = segments(ctx, ws)?.create(quantity::read_size(size)?, &controls.read()?)?;
            print_id(ctx, id)
        }
        What::Ls { ws, bytes } => {
            for (id, size) in segments(ctx, ws)?.list()? {
                match ctx.global.json {
                    true => ctx.out.line(json!({ "id": text(id), "size": size }))?,
                    false => ctx.out.line(format_args!("{:>12} {}", quantity::size(size, *bytes), text(id)))?,
                }
            }
            Ok(())
        }
        What::Size { ws, id } => {
            let size = segments(ctx, ws)?.size(parse(id)?)?;
            match ctx.global.json {
                true => ctx.out.line(json!({ "id": text(parse(id)?), "size": size })),
                false => ctx.out.line(size),
            }
        }
        What::Put(store) => send(ctx, store, false),
        What::Write(store) => send(ctx, store, true),
        What::Get(fetch) => receive(ctx, fetch, false),
        What::Read(fetch) => receive(ctx, fetch, true),
        What::Rm { ws, ids } => {
            let segments = segments(ctx, ws)?;
            ids.iter().try_for_each(|id| segments.remove(parse(id)?).map_err(Into::into))
        }
    }
}

fn segments(ctx: &mut Ctx, ws: &Address) -> Done<Segments> {
    ws.only_workspace()?;
    Ok(Segments::of(&ctx.workspace(ws)?)?)
}

fn text(id: Uuid) -> String {
    id.to_string().trim_start_matches("uuid:").to_owned()
}

/// An id, or a number in its place: programs that count their blocks need no UUIDs.
fn parse(id: &str) -> Done<Uuid> {
    if let Ok(number) = id.parse::<u128>() {
        return Ok(Uuid(number.to_be_bytes()));
    }
    let id = id.strip_prefix("uuid:").unwrap_or(id);
    Uuid::parse(&format!("uuid:{id}")).map_err(|_| {
        Error::invalid(format!("{id:?} is no id: give a UUID as iov segment create prints it, or a number")).into()
    })
}

fn print_id(ctx: &mut Ctx, id: Uuid) -> Done {
    match ctx.global.json {
        true => ctx.out.line(json!({ "id": text(id) })),
        false => ctx.out.line(text(id)),
    }
}

fn send(ctx: &mut Ctx, args: &Store, endless: bool) -> Done {
    let segments = segments(ctx, &args.ws)?;
    let (id, mut at) = (parse(&args.id)?, quantity::read_limit(&args.at)?);
    let from: Box<dyn Read + Send> = match args.file.as_os_str().as_encoded_bytes() {
        b"-" => ctx.stdin()?,
        _ => Box::new(open(&args.file)?),
    };
    let (pieces, begin) = (Pieces::of(&args.file, from)?, at);
    while let Some(piece) = pieces.next(ctx)? {
        let done = match endless {
            true => segments.write(id, at, &piece),
            false => segments.put(id, at, &piece),
        };
        done.map_err(|e| match e.kind() {
            Kind::FileTooBig => e.with_next("iov segment create WS SIZE makes a longer one"),
            _ => e,
        })?;
        at += piece.len() as u64;
        pieces.back(piece);
    }
    if at > begin {
        // Behind it, the length is right in listings too.
        ioverbs::close(&segments.handle(id)?)?;
    }
    Ok(())
}

fn open(path: &Path) -> Done<std::fs::File> {
    std::fs::File::open(path).map_err(|e| Error::from(e).context(path.display()).into())
}

fn receive(ctx: &mut Ctx, args: &Fetch, endless: bool) -> Done {
    let segments = segments(ctx, &args.ws)?;
    let id = parse(&args.id)?;
    let span = args.range.as_deref().map_or(Ok(Span::default()), Span::parse)?;
    let (mut at, end) = match (endless, span.to) {
        // There is no end but the one that was asked for.
        (true, Some(to)) => (span.from, to),
        (true, None) => span.of(size_or_none(&segments, id)?),
        (false, _) => span.within(segments.size(id)?)?,
    };
    let mut to = To::of(args.file.as_deref())?;
    let mut piece = vec![0; PIECE.min(end.saturating_sub(at) as usize)];
    while at < end {
        ctx.stop.check()?;
        let part = (end - at).min(piece.len() as u64) as usize;
        let out = &mut piece[..part];
        match endless {
            true => segments.read(id, at, out).map(drop)?,
            false => segments.get(id, at, out)?,
        }
        let written = |done: std::io::Result<()>| {
            done.map_err(|e| local("writing", args.file.as_deref().unwrap_or(Path::new("-")), e))
        };
        match &mut to {
            To::Out => ctx.out.bytes(out)?,
            To::Stream(file) => written(file.write_all(out))?,
            To::File(part) => written(part.file().as_ref().write_all(out))?,
        }
        at += part as u64;
    }
    match to {
        To::File(part) => Ok(part.finish()?),
        To::Out | To::Stream(_) => Ok(()),
    }
}

/// What others may do with a file of a segment, which has no mode: as with what is new in a store.
const MODE: u32 = 0o640;

/// Where a segment is read to.
enum To {
    Out,
    /// A pipe or a device, which has no half.
    Stream(std::fs::File),
    File(Part),
}

impl To {
    fn of(path: Option<&Path>) -> Done<To> {
        let Some(path) = path else { return Ok(To::Out) };
        Ok(match Way::to(path) {
            Way::Out => To::Out,
            Way::Stream => To::Stream(open_stream(path)?),
            Way::File => To::File(Part::new(path, modes::in_place_of(path, MODE))?),
        })
    }
}

/// The length of a block, or 0 if nobody has written it.
fn size_or_none(segments: &Segments, id: Uuid) -> Done<u64> {
    match segments.size(id) {
        Err(e) if e.kind() == ioverbs::Kind::NotFound => Ok(0),
        size => Ok(size?),
    }
}
