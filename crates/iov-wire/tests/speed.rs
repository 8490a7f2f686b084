//! What a create with five pairs of metadata costs on its way over the wire: `cargo test --release --test speed -- --ignored --nocapture`.
#![allow(clippy::disallowed_methods)] // it reads the clock because it measures

use std::{hint::black_box, time::Instant};

use iov_types::catalog::{CatalogOp, Submission};
use iov_types::{Attr, Controls, EntryKind, Metadata, Name, Uuid, Value};
use iov_wire::messages::{CatalogRequest, Context};
use iov_wire::{Header, Verb, Wire, frame};

fn create(i: u64) -> CatalogOp {
    let mut metadata = Metadata::new();
    let pairs = [
        ("experiment", Value::Str("isothermal-0042".into())),
        ("step", Value::I64(i as i64)),
        ("temperature", Value::F64(293.15)),
        ("valid", Value::Bool(true)),
        ("sampled", Value::Time(1_790_000_000_000_000_000)),
    ];
    for (key, value) in pairs {
        metadata.set(key, value).expect("a good key");
    }
    CatalogOp::Create {
        ws: Uuid([1; 16]),
        uuid: Uuid::v7(i, [2; 10]),
        kind: EntryKind::Collection,
        parent: Uuid([3; 16]),
        name: Some(Name::new(format!("run-{i:08}.dat")).expect("a good name")),
        metadata,
        controls: Controls::default(),
        layout: None,
        attr: Attr::default(),
        tell: false,
    }
}

fn nanos(rounds: u64, mut work: impl FnMut(u64)) -> f64 {
    let mut runs: Vec<f64> = (0..7)
        .map(|_| {
            let began = Instant::now();
            (0..rounds).for_each(&mut work);
            began.elapsed().as_nanos() as f64 / rounds as f64
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    runs[3]
}

#[test]
#[ignore = "times a release build"]
fn a_create_takes_less_than_a_microsecond_each_way() {
    let op = create(7);
    let bytes = op.to_bytes();
    let mut out = Vec::with_capacity(1 << 20);
    let encode = nanos(200_000, |_| {
        out.clear();
        black_box(&op).encode(&mut out);
        black_box(&out);
    });
    let decode = nanos(200_000, |_| {
        black_box(CatalogOp::decode(black_box(&bytes)).expect("what was encoded"));
    });
    assert!(encode < 1000.0 && decode < 1000.0, "encode {encode:.0} ns, decode {decode:.0} ns");
    println!("one create, {} bytes: encode {encode:.0} ns, decode {decode:.0} ns", bytes.len());

    let ops = (0..1000).map(|i| Ok(create(i))).collect();
    let request = CatalogRequest { context: Context::default(), how: Submission::UntilFailure, ops };
    let header = Header::new(Verb::Catalog, 1);
    let encode = nanos(300, |_| {
        out.clear();
        frame::append(header, black_box(&request), &mut out).expect("a frame below the limits");
    });
    let (head, body) = out.split_first_chunk().expect("a whole header");
    let decode = nanos(300, |_| {
        let header = Header::decode(black_box(head)).expect("what was encoded");
        black_box(header.body::<CatalogRequest>(body).expect("what was encoded"));
    });
    let per = |ns: f64| ns / 1000.0;
    let crc = nanos(300, |_| {
        black_box(frame::checksum(black_box(body)));
    });
    println!(
        "a frame of 1,000 creates, {} bytes: encode {:.0} ns, decode {:.0} ns a create (checksum {:.1} ns of either)",
        body.len(),
        per(encode),
        per(decode),
        per(crc)
    );
}
