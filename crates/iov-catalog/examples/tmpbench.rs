use bytes::Bytes;
use iov_store::*;
use std::time::Instant;
fn main() {
    let n = 1_000_000usize;
    let store = MemoryStore::new();
    let uuids: Vec<_> = (0..n).map(|_| seam::new_uuid()).collect();
    let t = Instant::now();
    for b in 0..n/1000 {
        let mut writes = Vec::new();
        for i in b*1000..(b+1)*1000 {
            let mut k = vec![b'R']; k.extend_from_slice(&[7;16]); k.extend_from_slice(&uuids[i].0);
            writes.push((k, Some(Bytes::copy_from_slice(&[1u8;140]))));
            let mut k = vec![b'N']; k.extend_from_slice(&[7;16]); k.extend_from_slice(format!("run-{:020}", i.wrapping_mul(2_654_435_761) % 1_000_000_007).as_bytes());
            writes.push((k, Some(Bytes::copy_from_slice(&[1u8;17]))));
            let mut k = vec![b'I']; k.extend_from_slice(&[7;16]); k.extend_from_slice(&(i as u64).to_be_bytes()); k.extend_from_slice(&uuids[i].0);
            writes.push((k, Some(Bytes::new())));
        }
        store.commit(vec![Txn{guards: vec![], writes}]).unwrap();
    }
    let s = t.elapsed().as_secs_f64();
    println!("commit 3 keys: {:.0}/s", n as f64/s);
    let t = Instant::now();
    for b in 0..n/1000 {
        let keys: Vec<Vec<u8>> = (b*1000..(b+1)*1000).map(|i| { let mut k = vec![b'R']; k.extend_from_slice(&[7;16]); k.extend_from_slice(&uuids[i.wrapping_mul(7919)%n].0); k}).collect();
        let r: Vec<&[u8]> = keys.iter().map(|k| &k[..]).collect();
        let g = store.get(&r).unwrap();
        assert!(g.iter().all(|x| x.is_some()));
    }
    let s = t.elapsed().as_secs_f64();
    println!("get: {:.0}/s", n as f64/s);
    let t = Instant::now();
    for b in 0..n/1000 {
        let keys: Vec<Vec<u8>> = (b*1000..(b+1)*1000).map(|i| { let mut k = vec![b'N']; k.extend_from_slice(&[7;16]); k.extend_from_slice(format!("run-{:020}", i.wrapping_mul(2_654_435_761) % 1_000_000_007).as_bytes()); k}).collect();
        let r: Vec<&[u8]> = keys.iter().map(|k| &k[..]).collect();
        let g = store.get(&r).unwrap();
        assert!(g.iter().all(|x| x.is_some()));
    }
    let s = t.elapsed().as_secs_f64();
    println!("get names: {:.0}/s", n as f64/s);
}
