//! `docs/wire.md` says what the code does: the tables in it are those of the code.

use iov_wire::{Header, Sender, Verb, frame};

fn document() -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/wire.md");
    std::fs::read_to_string(path).expect("the document is in the tree")
}

/// The cells of the table rows that begin with a number.
fn rows(section: &str) -> Vec<Vec<String>> {
    let document = document();
    let (_, rest) = document.split_once(&format!("\n## {section}\n")).expect("the section is there");
    let section = rest.split_once("\n## ").map_or(rest, |(section, _)| section);
    let cells = |line: &str| line.trim_matches('|').split('|').map(|c| c.trim().to_owned()).collect::<Vec<_>>();
    section
        .lines()
        .filter(|line| line.starts_with('|'))
        .map(cells)
        .filter(|row| row[0].starts_with(|c: char| c.is_ascii_digit()))
        .collect()
}

#[test]
fn the_table_of_verbs_is_the_one_in_the_code() {
    let sender = |verb: Verb| match verb.sender() {
        Sender::Client => "client",
        Sender::Server => "server",
        Sender::Both => "both",
    };
    let code: Vec<_> = Verb::ALL
        .iter()
        .map(|v| {
            let body = format!("`{}`", v.body());
            vec![v.number().to_string(), v.name().to_owned(), sender(*v).to_owned(), body, v.text().to_owned()]
        })
        .collect();
    assert_eq!(rows("Verbs"), code);
}

#[test]
fn numbers_of_verbs_find_their_verbs() {
    for verb in Verb::ALL {
        assert_eq!(Verb::from_number(verb.number()), Some(*verb));
    }
    assert!(Verb::from_number(0).is_none() && Verb::from_number(Verb::ALL.len() as u16 + 1).is_none());
}

#[test]
fn the_header_is_laid_out_as_drawn() {
    let header = Header {
        version: 1,
        verb: 0x0302,
        flags: 0x0706_0504,
        request: 0x0f0e_0d0c_0b0a_0908,
        body_len: 0x13,
        body_crc: 0x1716_1514,
        payload_len: 0x18,
        deadline_left_ns: 0x2726_2524_2322_2120,
    };
    let bytes = header.encode();
    let number = |at: usize, len: usize| bytes[at..at + len].iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
    let rows = rows("Header");
    let mut end = 0;
    for row in &rows {
        let (at, len): (usize, usize) = (row[0].parse().expect("an offset"), row[1].parse().expect("a length"));
        assert_eq!(at, end, "a gap before {row:?}");
        end = at + len;
        let expected = match row[2].as_str() {
            "magic" => u64::from_le_bytes(frame::MAGIC),
            "version" => header.version.into(),
            "verb" => header.verb.into(),
            "flags" => header.flags.into(),
            "request" => header.request,
            "body length" => header.body_len.into(),
            "body checksum" => header.body_crc.into(),
            "payload length" => header.payload_len,
            "time left" => header.deadline_left_ns,
            "header checksum" => {
                let mut blank = bytes;
                blank[at..end].fill(0);
                frame::checksum(&blank).into()
            }
            "reserved" => 0,
            other => panic!("the code has no {other}"),
        };
        assert_eq!(if row[2] == "reserved" { 0 } else { number(at, len) }, expected, "{row:?}");
    }
    assert_eq!((end, rows.len()), (frame::HEADER_BYTES, 11));
}

#[test]
fn the_limits_are_those_in_the_code() {
    let document = document();
    for (what, limit) in [("body", frame::BODY_BYTES), ("payload", frame::PAYLOAD_BYTES)] {
        assert!(document.contains(&format!("{what} at most {} MiB", limit >> 20)), "{what}");
    }
    assert!(document.contains(&format!("deeper than {}", iov_wire::codec::MAX_DEPTH)));
}
