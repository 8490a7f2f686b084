//! What a create costs on its way over the wire: encode and decode of one with five pairs, and of a batch of them.

use std::{hint::black_box, time::Instant};

use iov_types::{Attr, Controls, EntryKind, Metadata, Name, Uuid, Value, catalog::CatalogOp};
use iov_wire::Wire;

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

fn main() {
    let op = create(7);
    let bytes = op.to_bytes();
    let mut out = Vec::with_capacity(4096);
    println!("one create with five pairs: {} bytes", bytes.len());
    let encode = nanos(200_000, |_| {
        out.clear();
        black_box(&op).encode(&mut out);
        black_box(&out);
    });
    println!("encode  {encode:7.1} ns");
    let decode = nanos(200_000, |_| {
        black_box(CatalogOp::decode(black_box(&bytes)).expect("what was encoded"));
    });
    println!("decode  {decode:7.1} ns");
}
