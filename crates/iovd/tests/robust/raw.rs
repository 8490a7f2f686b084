//! Clients that speak for themselves: frames as they are on the wire, from whoever does not use the library.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use iov_net::secret::{Secret, Side};
use iov_wire::{
    Body, Header, Verb, Wire, frame,
    messages::{Challenge, Hello, ObjectCall, ObjectRequest, Proof},
};
use ioverbs::{Demand, ObjectId, ObjectOp, ObjectVerb, Uuid};

/// A body in a frame, as the first request.
pub(crate) fn framed<B: Body>(body: &B) -> Vec<u8> {
    framed_as(body, 1)
}

/// A body in a frame.
pub(crate) fn framed_as<B: Body>(body: &B, request: u64) -> Vec<u8> {
    let mut out = Vec::new();
    frame::append(Header::new(B::VERB, request), body, &mut out).unwrap();
    out
}

/// The next frame; `None` once the connection has ended.
pub(crate) fn receive(stream: &mut impl Read) -> Option<(Header, Vec<u8>)> {
    let mut head = [0; frame::HEADER_BYTES];
    stream.read_exact(&mut head).ok()?;
    let header = Header::decode(&head).unwrap();
    let mut body = vec![0; header.body_len as usize + header.payload_len as usize];
    stream.read_exact(&mut body).ok()?;
    body.truncate(header.body_len as usize);
    Some((header, body))
}

/// The verb and the body of the next frame, which comes.
pub(crate) fn answer(stream: &mut impl Read) -> (Verb, Vec<u8>) {
    let (header, body) = receive(stream).unwrap();
    (header.verb().unwrap(), body)
}

/// What a client says first over a connection of a session.
pub(crate) fn hello(session: Uuid, channel: u32) -> Hello {
    Hello {
        min_version: 1,
        max_version: 1,
        library: "9.9".into(),
        session,
        program: "raw".into(),
        pid: 1,
        channel,
        challenge: vec![5; 32],
        target: 0,
        of: Uuid::NIL,
        rings: false,
    }
}

pub(crate) fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// Says hello and proves with a secret, over a stream that is connected; what came of that.
pub(crate) fn prove_over(stream: &mut (impl Read + Write), hello: &Hello, secret: &Secret) -> (Verb, Vec<u8>) {
    stream.write_all(&framed(hello)).unwrap();
    let (verb, body) = answer(stream);
    assert_eq!(verb, Verb::Challenge);
    let challenge = Challenge::decode(&body).unwrap().challenge;
    let proof = secret.proof(Side::Client, hello, &challenge).to_vec();
    stream.write_all(&framed(&Proof { proof })).unwrap();
    answer(stream)
}

/// The same over a new connection.
pub(crate) fn prove(address: &str, hello: &Hello, secret: &Secret) -> (TcpStream, Verb) {
    let mut stream = connect(address);
    let verb = prove_over(&mut stream, hello, secret).0;
    (stream, verb)
}

/// One operation on an object, with room for so many bytes.
pub(crate) fn request(object: ObjectId, verb: ObjectVerb, len: u64, tickets: Vec<Vec<u8>>) -> ObjectRequest {
    let op = ObjectOp { object, verb, demand: Demand::default() };
    let calls = vec![ObjectCall { op: Ok(op), len, checksum: None }];
    ObjectRequest { context: Default::default(), calls, tickets }
}

/// Asks for a gigabyte, a mebibyte at a time, of which nothing will be read.
pub(crate) fn ask_for_a_gigabyte(stream: &mut impl Write, collection: Uuid) {
    for n in 1..1000 {
        let object = ObjectId { collection, slot: 0 };
        let request = request(object, ObjectVerb::Read { offset: 0 }, 1 << 20, Vec::new());
        if stream.write_all(&framed_as(&request, n)).is_err() {
            break;
        }
    }
}
