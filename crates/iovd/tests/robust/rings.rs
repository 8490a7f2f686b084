//! Rings in shared memory beside the socket: questions go by them, and who spoils them is cut off.

use std::{
    os::{
        fd::OwnedFd,
        unix::{fs::FileExt, net::UnixStream},
    },
    time::Duration,
};

use iov_net::{
    frames::{Frame, Frames},
    socket,
    stream::Stream,
};
use iov_store::{End, Rings};
use iov_wire::{
    Header, Verb, Wire,
    messages::{Hello, StatusRequest, Wake, Welcome},
};
use ioverbs::seam;

use crate::{
    kit::{Store, create, read},
    raw::{self, framed, framed_as},
};

/// Where a client's words lie in the memory of its rings: how much it has put there.
const TAIL: u64 = 64;

fn connect(store: &Store) -> UnixStream {
    let stream = UnixStream::connect(store.dir().join("socket")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

fn next(frames: &mut Frames, stream: &Stream) -> Option<Frame> {
    loop {
        match frames.next(stream, false) {
            Ok(Some(frame)) if frame.header.verb == Verb::Wake.number() => {}
            Ok(Some(frame)) => return Some(frame),
            Ok(None) if stream.holds() => {}
            Ok(None) => assert!(socket::wait_readable(stream, 60_000_000_000), "nothing comes"),
            Err(_) => return None,
        }
    }
}

/// A connection that was let in, what has come over it, and the memory of its rings.
fn inside(store: &Store, rings: bool) -> (Stream, Frames, Option<OwnedFd>) {
    let (stream, mut frames) = (Stream::from(OwnedFd::from(connect(store))), Frames::default());
    let hello = Hello { challenge: Vec::new(), rings, ..raw::hello(seam::new_uuid(), 0) };
    send(&stream, &framed(&hello));
    let frame = next(&mut frames, &stream).unwrap();
    let welcome = Welcome::decode(&frame.body).unwrap();
    assert_eq!(welcome.rings, rings, "who cannot use them gets none");
    let _lease_page = frames.take_fd().unwrap().unwrap();
    let memory = rings.then(|| frames.take_fd().unwrap().unwrap());
    assert!(frames.take_fd().is_err(), "nothing else came along");
    (stream, frames, memory)
}

fn send(stream: &Stream, bytes: &[u8]) {
    let sent = stream.send_some(&[std::io::IoSlice::new(bytes)], &[]).unwrap();
    assert_eq!(sent, Some(bytes.len()));
}

#[test]
fn questions_and_answers_go_by_the_rings_while_both_look() {
    let store = Store::new();
    let _ws = store.in_workspace();
    let (stream, mut frames, memory) = inside(&store, true);
    let memory = memory.unwrap();
    let seen = Rings::map(&memory, End::Client).unwrap();
    stream.begin(Rings::map(&memory, End::Client).unwrap());
    let (mut asked, mut answered) = (0, 0);
    // The daemon looks once it has seen that questions come soon, as often as it is given a processor.
    for n in 1..20_000 {
        asked += u32::from(!seen.sleeps());
        stream.look(true);
        send(&stream, &framed_as(&StatusRequest, n));
        while !stream.holds() && !socket::wait_readable(&stream, 0) {
            std::hint::spin_loop();
        }
        answered += u32::from(stream.holds());
        let frame = next(&mut frames, &stream).unwrap();
        assert_eq!((frame.header.request, frame.header.verb()), (n, Ok(Verb::StatusAnswer)));
        if asked > 100 && answered > 100 {
            return;
        }
    }
    panic!("of all questions {asked} went by the ring, and {answered} answers");
}

#[test]
fn who_spoils_its_rings_is_cut_off_and_others_are_served() {
    let store = Store::new();
    let ws = store.in_workspace();
    let c = create(&ws, "calm", "");
    ioverbs::write_at(&c, 0, b"calm").unwrap();
    let pid = store.status("pid");
    // More than there is room for; what is no piece; and a piece of a time that has not come.
    let piece = |len: u32, after: u64| [&len.to_le_bytes()[..], &[0; 4], &after.to_le_bytes(), &[0; 16]].concat();
    let spoils = [
        (u64::MAX, Vec::new()),
        (1 << 40, Vec::new()),
        (8, Vec::new()),
        (32, piece(0, 0)),
        (32, piece(1 << 30, 0)),
        (32, piece(16, u64::MAX)),
        (32, piece(16, 0)),
    ];
    for (tail, piece) in spoils {
        let (stream, mut frames, memory) = inside(&store, true);
        let memory = std::fs::File::from(memory.unwrap());
        memory.write_all_at(&piece, 4096).unwrap();
        memory.write_all_at(&tail.to_le_bytes(), TAIL).unwrap();
        send(&stream, &framed_as(&Wake, 0));
        let said = next(&mut frames, &stream);
        assert!(said.is_none_or(|frame| frame.header.verb() == Ok(Verb::Fault)), "{tail} {piece:?}");
        assert!(next(&mut frames, &stream).is_none(), "and it has ended");
    }
    // Words that say nothing true about what was taken hurt nobody but who waits for an answer by his ring.
    let (stream, mut frames, memory) = inside(&store, true);
    let memory = std::fs::File::from(memory.unwrap());
    memory.write_all_at(&[0xff; 4096 - 64], 64).unwrap();
    let _ = stream.send_some(&[std::io::IoSlice::new(&framed_as(&StatusRequest, 1))], &[]);
    let _ = next(&mut frames, &stream);
    assert_eq!(read(&c), b"calm");
    assert_eq!(store.status("pid"), pid, "the daemon has not ended");
}

#[test]
fn who_knows_of_no_rings_is_served_without() {
    let store = Store::new();
    let _ws = store.in_workspace();
    let (stream, mut frames, memory) = inside(&store, false);
    assert!(memory.is_none());
    // Many one after the other: nobody looks for them elsewhere.
    for n in 1..2_000 {
        send(&stream, &framed_as(&StatusRequest, n));
        assert_eq!(next(&mut frames, &stream).unwrap().header.request, n);
    }
    // What only wakes says nothing, however often.
    for _ in 0..100 {
        send(&stream, &Header::new(Verb::Wake, 0).encode());
    }
    send(&stream, &framed_as(&StatusRequest, 2_000));
    assert_eq!(next(&mut frames, &stream).unwrap().header.request, 2_000);
    assert_ne!(store.status("pid"), None);
}
