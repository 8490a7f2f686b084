#![allow(clippy::disallowed_methods)]

use iov_types::Kind;

use super::*;

fn pair() -> (Rings, Rings, OwnedFd) {
    let memory = rings_memory().unwrap();
    let server = Rings::map(&memory, End::Server).unwrap();
    (Rings::map(&memory, End::Client).unwrap(), server, memory)
}

fn put(rings: &Rings, after: u64, bytes: &[u8]) -> bool {
    rings.offer(after, &[IoSlice::new(bytes)]).unwrap()
}

fn take_all(rings: &Rings) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some(after) = rings.next().unwrap() {
        let mut piece = vec![0; MOST];
        let n = rings.take(&mut piece).unwrap();
        piece.truncate(n);
        all.push((after, piece));
    }
    all
}

#[test]
fn pieces_come_as_they_were_put_there_and_only_for_who_looks() {
    let (client, server, _memory) = pair();
    assert!(!put(&client, 0, b"asleep"), "nobody looks");
    server.look(true);
    assert!(server.looks() && !client.sleeps() && server.sleeps() && !server.has_some());
    let mut expected = Vec::new();
    // Around the end of the ring, many times; the other way meanwhile has nothing.
    for n in 1..2_000_u64 {
        let bytes: Vec<u8> = (0..n % 700 + 1).map(|i| (i * n) as u8).collect();
        let (first, rest) = bytes.split_at(bytes.len() / 3);
        assert!(client.offer(n, &[IoSlice::new(first), IoSlice::new(rest)]).unwrap());
        expected.push((n, bytes));
        if n % 7 == 0 {
            assert!(server.has_some());
            assert_eq!(take_all(&server), std::mem::take(&mut expected));
        }
    }
    assert_eq!(client.next(), Ok(None));
    client.look(true);
    assert!(put(&server, 5, b"an answer"));
    // A part of it at a time.
    let mut part = [0; 4];
    assert_eq!((client.next(), client.take(&mut part), &part), (Ok(Some(5)), Ok(4), b"an a"));
    assert!(client.has_some());
    assert_eq!(take_all(&client), [(5, b"nswer".to_vec())]);
}

#[test]
fn what_finds_no_room_goes_another_way() {
    let (client, server, _memory) = pair();
    server.look(true);
    assert!(!put(&client, 0, &[]) && !put(&client, 0, &[1; MOST + 1]));
    let fit = (0..).take_while(|_| put(&client, 0, &[1; MOST])).count();
    assert_eq!(fit, ROOM / (MOST + PIECE));
    assert_eq!(take_all(&server).len(), fit);
    assert!(put(&client, 0, &[1; MOST]));
}

#[test]
fn only_what_was_made_for_it_is_mapped() {
    let kind = |fd: &OwnedFd| Rings::map(fd, End::Client).unwrap_err().kind();
    assert_eq!(kind(&tempfile::tempfile().unwrap().into()), Kind::Corrupt);
    let fd = rings_memory().unwrap();
    assert_eq!(kind(&fd), Kind::Corrupt, "the server has not made rings of it yet");
    rustix::io::pwrite(&fd, &MAGIC.to_le_bytes(), 0).unwrap();
    assert_eq!(kind(&fd), Kind::Version);
    // It could be made shorter.
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let unsealed = rustix::fs::memfd_create(c"test", flags).unwrap();
    rustix::fs::ftruncate(&unsealed, RINGS_BYTES as u64).unwrap();
    assert_eq!(Rings::map(&unsealed, End::Server).unwrap_err().kind(), Kind::Corrupt);
    assert!(rustix::fs::ftruncate(&fd, 0).is_err() && rustix::fs::ftruncate(&fd, 1 << 20).is_err());
}

#[test]
fn what_the_other_side_has_spoilt_is_an_error_and_nothing_worse() {
    // What the client's words and the head of its first piece may say.
    type Spoil = fn(&Rings);
    let spoils: [(&str, Spoil); 6] = [
        ("a tail too far", |c| c.way(0).tail.0.store(ROOM as u64 + 1, Ordering::SeqCst)),
        ("a tail behind the head", |c| c.way(0).tail.0.store(u64::MAX, Ordering::SeqCst)),
        ("less than a head", |c| c.way(0).tail.0.store(PIECE as u64, Ordering::SeqCst)),
        ("a piece of nothing", |c| c.map.put(0, 0, &[0; PIECE])),
        ("a piece longer than what is there", |c| c.map.put(0, 0, &9u32.to_le_bytes())),
        ("a huge piece", |c| c.map.put(0, 0, &u32::MAX.to_le_bytes())),
    ];
    for (what, spoil) in spoils {
        let (client, server, _memory) = pair();
        server.look(true);
        assert!(put(&client, 0, b"eight...") && server.has_some());
        spoil(&client);
        assert_eq!(server.next().unwrap_err().kind(), Kind::Corrupt, "{what}");
    }
    // What the receiver says it has taken.
    for head in [1, ROOM as u64 * 2] {
        let (client, server, _memory) = pair();
        server.look(true);
        server.way(0).head.0.store(head, Ordering::SeqCst);
        let offered = client.offer(0, &[IoSlice::new(b"x")]);
        assert_eq!(offered.unwrap_err().kind(), Kind::Corrupt, "{head}");
    }
    // What changes behind the back of who takes it is what it is, and no more.
    let (client, server, _memory) = pair();
    server.look(true);
    assert!(put(&client, 0, b"eight...") && server.next() == Ok(Some(0)));
    client.map.put(0, 0, &u32::MAX.to_le_bytes());
    client.way(0).tail.0.store(0, Ordering::SeqCst);
    assert_eq!(server.take(&mut [0; 100]), Ok(8));
    assert_eq!(server.next().unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn what_was_not_taken_when_its_sender_gave_up_is_not_taken() {
    let (client, server, _memory) = pair();
    server.look(true);
    assert!(put(&client, 0, b"first") && put(&client, 0, b"second"));
    assert_eq!((server.next(), server.take(&mut [0; 100])), (Ok(Some(0)), Ok(5)));
    let first = (PIECE + 5) as u64;
    assert_eq!((client.taken(), client.put()), (first, 2 * first + 1));
    assert_eq!(client.give_up(), first);
    assert_eq!(server.next(), Ok(Some(0)));
    assert_eq!(server.take(&mut [0; 100]).unwrap_err().kind(), Kind::Unavailable);
}
