//! Clients that move bytes themselves, in processes of their own, and a target that takes that back (G1–G6).

use std::{
    collections::HashMap,
    os::fd::OwnedFd,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use iov_media::{Files, Granted, Peer as Client, Which};
use iov_store::{ClientPage, ClientSlot, LeaseAccess};
use iov_types::{Clause, Demand, Kind, ObjectVerb, Uuid};
use rustix::process::Signal;

use crate::kit::{ALL, Parent, Peer, all, bytes, call, cx, directory, file, object, open, send, uuid, write};

const LEN: usize = 200_000;

/// The client: does with its grants what it is told, line by line.
pub(crate) fn client(mut parent: Parent) {
    let mut page = None;
    let mut grants: HashMap<String, (OwnedFd, ClientSlot)> = HashMap::new();
    while let Some((line, file)) = parent.hear() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |n: usize| words[n].parse::<u64>().expect("a number");
        let answer = match words[0] {
            "page" => {
                page = Some(ClientPage::map(file.expect("the page")).expect("a page"));
                "mapped".to_owned()
            }
            "grant" => {
                let slot = page.as_ref().expect("a page").slot(number(2) as u32, number(3)).expect("a slot");
                grants.insert(words[1].to_owned(), (file.expect("the file"), slot));
                "taken".to_owned()
            }
            // Writes once; with `stop` it stops itself between announcing the write and writing.
            "write" => {
                let (file, slot) = &grants[words[1]];
                put(file, slot, number(2), &vec![number(3) as u8; number(4) as usize], words.get(5) == Some(&"stop"))
            }
            // Writes again and again until it may no more; tells the last that counts.
            "loop" => {
                let (file, slot) = &grants[words[1]];
                let mut last = 0;
                parent.say("begun");
                loop {
                    let value = last % 200 + 1;
                    match put(file, slot, 0, &vec![value; LEN], false).as_str() {
                        "done" => last = value,
                        end => break format!("{end} {last}"),
                    }
                }
            }
            // Makes the object longer and longer until it may no more; tells how often it has.
            "grow" => {
                let (file, slot) = &grants[words[1]];
                parent.say("begun");
                let mut done = 0;
                while put(file, slot, done * 1000, &[9; 1000], false) == "done" {
                    done += 1;
                }
                done.to_string()
            }
            "read" => {
                let (file, slot) = &grants[words[1]];
                let mut out = vec![0; 1000];
                let before = slot.holds();
                let n = rustix::io::pread(file, &mut out, number(2)).expect("a read");
                let same = out[..n].iter().all(|b| *b == out[0]);
                format!("{} {n} {}", before && slot.read_is_valid(), if same { i32::from(out[0]) } else { -1 })
            }
            other => panic!("no command {other}"),
        };
        parent.say(&answer);
    }
}

fn put(file: &OwnedFd, slot: &ClientSlot, offset: u64, data: &[u8], stop: bool) -> String {
    let Some(guard) = slot.begin_write() else { return "refused".into() };
    if stop {
        // SAFETY: takes no pointer. To this thread: one sent to the process might stop it only when this has written.
        unsafe { libc::raise(libc::SIGSTOP) };
    }
    let mut done = 0;
    while done < data.len() {
        done += rustix::io::pwrite(file, &data[done..], offset + done as u64).expect("a write");
    }
    if guard.finish() { "done".into() } else { "void".into() }
}

/// A client process with a session.
pub(crate) struct Connected {
    pub(crate) peer: Peer,
    session: Uuid,
}

impl Connected {
    pub(crate) fn new(files: &Files, root: &Path, n: u8) -> Connected {
        let mut peer = Peer::start("client", root, &[]);
        let session = uuid(n);
        let page = files.open_session(session, of(&peer)).expect("a session");
        peer.pass("page", &page);
        assert_eq!(peer.hear(), "mapped");
        Connected { peer, session }
    }

    pub(crate) fn grant(&mut self, files: &Files, slot: u64, access: LeaseAccess, epoch: u64, name: &str) -> Granted {
        let granted = files.grant(&cx(), self.session, object(slot), access, ALL, epoch).expect("a grant");
        self.peer.pass(&format!("grant {name} {} {}", granted.slot, granted.generation), file(&granted));
        assert_eq!(self.peer.hear(), "taken");
        granted
    }

    fn ask(&mut self, line: &str) -> String {
        self.peer.tell(line);
        self.peer.hear()
    }
}

fn of(peer: &Peer) -> Client {
    Client { pid: peer.pid(), uid: rustix::process::geteuid().as_raw() }
}

fn epoch(epoch: u64) -> Demand {
    Demand { epoch, ..Demand::default() }
}

/// What one process writes itself, another reads through the daemon, and the other way round.
#[test]
fn g1_a_client_moves_bytes_itself() {
    let directory = directory();
    let files = open(directory.path());
    let mut client = Connected::new(&files, directory.path(), 1);
    client.grant(&files, 1, LeaseAccess::Write, 0, "a");
    assert_eq!(client.ask("write a 100 7 5000"), "done");
    assert_eq!(all(&*files, object(1)), [vec![0; 100], vec![7; 5000]].concat());
    write(&*files, object(1), 0, &[8; 2000]).expect("a write by the daemon");
    assert_eq!(client.ask("read a 0"), "true 1000 8");
    let granted = client.grant(&files, 1, LeaseAccess::Read, 0, "r");
    assert_eq!(client.ask("read r 1500"), "true 1000 -1");
    let mode = rustix::fs::fcntl_getfl(file(&granted)).expect("flags") & rustix::fs::OFlags::RWMODE;
    assert_eq!(mode, rustix::fs::OFlags::RDONLY, "G5: a reader cannot write");
    assert_eq!(client.ask("write r 0 9 10".replace(" r ", " a ").as_str()), "done");
    files.give_back(client.session, &[(granted.slot, granted.generation)]);
    assert_eq!(client.ask("read r 0"), "false 1000 -1", "what was given back is void");
    files.end_session(client.session).expect("the end");
    assert_eq!(client.ask("write a 0 9 10"), "refused");
    assert_eq!(std::fs::read_dir(directory.path().join("leases")).expect("pages").count(), 0);
}

#[test]
fn t11_a_direct_write_is_before_the_seal_or_fails() {
    let directory = directory();
    let files = open(directory.path());
    let mut clients = [Connected::new(&files, directory.path(), 1), Connected::new(&files, directory.path(), 2)];
    for round in 0..15 {
        write(&*files, object(round), 0, &[250; LEN]).expect("a write");
        for client in &mut clients {
            client.grant(&files, round, LeaseAccess::Write, 0, "a");
            client.peer.tell("loop a");
            assert_eq!(client.peer.hear(), "begun");
        }
        std::thread::sleep(Duration::from_micros(round * 700));
        call(&*files, object(round), ObjectVerb::Seal).expect("a seal");
        let sealed = all(&*files, object(round));
        let last: Vec<String> = clients.iter_mut().map(|c| c.peer.hear()).collect();
        // Each of the two writes everything at once: what is there now is the last write that counts of one of them.
        let mut values: Vec<u8> = vec![250];
        for line in &last {
            let (end, value) = line.split_once(' ').expect("two words");
            assert_eq!(end, "refused", "no write of a process that answers is void");
            values.push(value.parse().expect("a number"));
        }
        assert!(sealed.iter().all(|b| *b == sealed[0]) && values.contains(&sealed[0]), "{last:?}, {}", sealed[0]);
        assert!(all(&*files, object(round)) == sealed, "M2: bytes are fixed once sealed");
        let refused = files.grant(&cx(), clients[0].session, object(round), LeaseAccess::Write, ALL, 0);
        assert_eq!(refused.err().map(|e| e.kind()), Some(Kind::Immutable));
        clients[0].grant(&files, round, LeaseAccess::Read, 0, "r");
        assert_eq!(clients[0].ask("read r 0"), format!("true 1000 {}", sealed[0]));
    }
}

/// Takes an object away from a client that has stopped inside its copy; then the client goes on.
fn take_from_stopped(take: impl Fn(&Files), expected: &[u8], grants: LeaseAccess) {
    let directory = directory();
    let files = open(directory.path());
    write(&*files, object(1), 0, &bytes(1, LEN)).expect("a write");
    let mut client = Connected::new(&files, directory.path(), 1);
    client.grant(&files, 1, LeaseAccess::Write, 0, "a");
    if grants == LeaseAccess::Read {
        client.grant(&files, 1, LeaseAccess::Read, 0, "r");
    }
    client.peer.tell(&format!("write a 0 99 {LEN} stop"));
    client.peer.wait_until_stopped();
    let begun = Instant::now();
    take(&files);
    assert!(begun.elapsed() < Duration::from_secs(5), "a stopped client holds nobody up");
    assert!(all(&*files, object(1)) == expected, "taken as it was");
    client.peer.signal(Signal::CONT);
    assert_eq!(client.peer.hear(), "void", "the client hears that its write does not count");
    assert!(all(&*files, object(1)) == expected, "T12: nothing of it appears");
    assert_eq!(client.ask("write a 0 98 10"), "refused");
    if grants == LeaseAccess::Read {
        assert!(client.ask("read r 0").starts_with("false"), "a reader of the old bytes is told");
    }
    files.sweep_sessions().expect("a sweep");
    let again = files.grant(&cx(), client.session, object(2), LeaseAccess::Write, ALL, 0).expect("the session goes on");
    drop(again);
}

#[test]
fn t12_a_fence_takes_from_a_stopped_holder() {
    let mut expected = bytes(1, LEN);
    expected[5..105].fill(3);
    let take = |files: &Files| {
        call(files, object(1), ObjectVerb::Fence { epoch: 2 }).expect("a fence");
        send(files, object(1), ObjectVerb::Write { offset: 5 }, epoch(2), &[3; 100]).expect("the next holder's write");
    };
    take_from_stopped(take, &expected, LeaseAccess::Read);
}

#[test]
fn t12_a_seal_takes_from_a_stopped_writer() {
    let take = |files: &Files| {
        call(files, object(1), ObjectVerb::Seal).expect("a seal");
    };
    take_from_stopped(take, &bytes(1, LEN), LeaseAccess::Write);
}

#[test]
fn g4_a_publication_takes_from_a_stopped_writer() {
    let mut expected = bytes(1, LEN);
    expected[70..1070].fill(4);
    let take = |files: &Files| {
        let staged = Demand { stage: Some(uuid(9)), ..Demand::default() };
        send(files, object(1), ObjectVerb::Write { offset: 70 }, staged, &[4; 1000]).expect("a staged write");
        call(files, object(1), ObjectVerb::Freeze { stage: uuid(9) }).expect("a freeze");
        call(files, object(1), ObjectVerb::Publish { stage: uuid(9) }).expect("a publication");
    };
    take_from_stopped(take, &expected, LeaseAccess::Read);
}

#[test]
fn g4_units_take_from_a_stopped_writer() {
    let mut expected = bytes(1, LEN);
    expected[4096..8192].fill(5);
    let take = |files: &Files| {
        let unit = Demand { unit: 4096, ..Demand::default() };
        send(files, object(1), ObjectVerb::Write { offset: 4096 }, unit, &[5; 4096]).expect("a unit");
    };
    take_from_stopped(take, &expected, LeaseAccess::Read);
}

#[test]
fn m4_appends_take_from_a_stopped_writer() {
    let take = |files: &Files| {
        call(files, object(1), ObjectVerb::Append).expect("an empty append changes nothing");
        send(files, object(1), ObjectVerb::Append, Demand::default(), b"end").expect("an append");
    };
    take_from_stopped(take, &[&bytes(1, LEN)[..], b"end"].concat(), LeaseAccess::Read);
}

#[test]
fn g1_a_quota_takes_from_a_stopped_writer() {
    let take = |files: &Files| files.revoke(&cx(), object(1), Which::Writers).expect("a recall");
    take_from_stopped(take, &bytes(1, LEN), LeaseAccess::Write);
}

#[test]
fn x1_a_fence_leaves_grants_of_its_own_epoch() {
    let directory = directory();
    let files = open(directory.path());
    call(&*files, object(1), ObjectVerb::Fence { epoch: 2 }).expect("a fence");
    let mut client = Connected::new(&files, directory.path(), 1);
    let late = files.grant(&cx(), client.session, object(1), LeaseAccess::Write, ALL, 1);
    assert_eq!(late.err().map(|e| e.kind()), Some(Kind::Fenced));
    client.grant(&files, 1, LeaseAccess::Write, 2, "a");
    call(&*files, object(1), ObjectVerb::Fence { epoch: 2 }).expect("the same fence");
    assert_eq!(client.ask("write a 0 1 100"), "done");
    call(&*files, object(1), ObjectVerb::Fence { epoch: 3 }).expect("a fence");
    assert_eq!(client.ask("write a 0 2 100"), "refused");
    assert_eq!(all(&*files, object(1)), [1; 100]);
}

#[test]
fn t21_an_old_reader_never_sees_foreign_bytes() {
    let directory = directory();
    let files = open(directory.path());
    write(&*files, object(1), 0, &[1; 5000]).expect("a write");
    let mut client = Connected::new(&files, directory.path(), 1);
    client.grant(&files, 1, LeaseAccess::Read, 0, "r");
    client.grant(&files, 1, LeaseAccess::Write, 0, "w");
    call(&*files, object(1), ObjectVerb::Remove).expect("a remove");
    for slot in [1, 2] {
        write(&*files, object(slot), 0, &[2; 5000]).expect("a write elsewhere and under the same name");
        let line = client.ask("read r 0");
        assert!(line.starts_with("false"), "nobody had it open any more (O10): what is read there is void: {line}");
    }
    assert_eq!(client.ask("write w 0 3 5000"), "refused");
    assert_eq!(all(&*files, object(1)), [2; 5000], "what is written to the removed one reaches nobody");
    // Taking the new one back takes the old grants as well.
    call(&*files, object(1), ObjectVerb::Seal).expect("a seal");
    assert_eq!(client.ask("write w 0 4 5000"), "refused");
}

#[test]
fn p2_a_client_is_killed_inside_its_write() {
    let directory = directory();
    let files = open(directory.path());
    for round in 0..8u64 {
        let id = object(round);
        write(&*files, id, 0, &[250; LEN]).expect("a write");
        let mut client = Connected::new(&files, directory.path(), 1);
        client.grant(&files, round, LeaseAccess::Write, 0, "a");
        client.peer.tell("loop a");
        assert_eq!(client.peer.hear(), "begun");
        std::thread::sleep(Duration::from_micros(1000 + round * 377));
        client.peer.signal(Signal::KILL);
        call(&*files, id, ObjectVerb::Fence { epoch: 1 }).expect("a fence");
        let found = all(&*files, id);
        assert_eq!(found.len(), LEN);
        assert!(found.iter().all(|b| *b == 250 || *b <= 200), "each byte is old or new");
        assert_eq!(client.peer.end(), Some(9));
        write(&*files, id, 0, &[251; LEN]).expect("a write");
        assert!(all(&*files, id) == [251; LEN], "and it stays so");
        files.sweep_sessions().expect("a sweep");
        assert_eq!(std::fs::read_dir(directory.path().join("leases")).expect("pages").count(), 0, "its page is gone");
    }
}

#[test]
fn g6_what_cannot_be_granted_goes_through_the_socket() {
    let directory = directory();
    let files = open(directory.path());
    let client = Connected::new(&files, directory.path(), 1);
    let grant = |slot, access| {
        files
            .grant(&cx(), client.session, object(slot), access, ALL, 0)
            .map(|g| g.range.end())
            .map_err(|e| (e.kind(), e.clause()))
    };
    let unsupported = Err((Kind::Unsupported, Some(Clause::G6)));
    assert_eq!(grant(1, LeaseAccess::Read), unsupported, "nobody has written it");
    send(&*files, object(2), ObjectVerb::Append, Demand::default(), b"record").expect("an append");
    assert_eq!(grant(2, LeaseAccess::Write), unsupported, "appends");
    assert_eq!(grant(2, LeaseAccess::Read), Ok(6), "a reader of appends stops at their end");
    let unit = Demand { unit: 4096, ..Demand::default() };
    send(&*files, object(3), ObjectVerb::Write { offset: 0 }, unit, &[1; 4096]).expect("a unit");
    assert_eq!(grant(3, LeaseAccess::Read), unsupported, "units");
    assert_eq!(grant(3, LeaseAccess::Write), unsupported, "units");
    assert_eq!(grant(4, LeaseAccess::Write), Ok(i64::MAX as u64), "a writer makes the file");
    let dead = Client { pid: 0, ..of(&client.peer) };
    assert_eq!(
        files.open_session(uuid(5), dead).err().map(|e| e.kind()),
        Some(Kind::Unsupported),
        "a foreign namespace"
    );
    assert_eq!(files.open_session(client.session, of(&client.peer)).err().map(|e| e.kind()), Some(Kind::Exists));
    let stale = files.grant(&cx(), uuid(77), object(4), LeaseAccess::Read, ALL, 0);
    assert_eq!(stale.err().map(|e| e.kind()), Some(Kind::Unsupported), "no session");
}

#[test]
fn g5_other_users_may_only_read() {
    let directory = directory();
    let files = open(directory.path());
    write(&*files, object(1), 0, &[6; 2000]).expect("a write");
    let mut peer = Peer::start("client", directory.path(), &[]);
    let other = Client { uid: of(&peer).uid + 1, ..of(&peer) };
    let page = files.open_session(uuid(1), other).expect("a session");
    let mode = rustix::fs::fcntl_getfl(&page).expect("flags") & rustix::fs::OFlags::RWMODE;
    assert_eq!(mode, rustix::fs::OFlags::RDONLY, "it cannot cut the page under the daemon's feet");
    let refused = files.grant(&cx(), uuid(1), object(1), LeaseAccess::Write, ALL, 0);
    assert_eq!(refused.err().map(|e| (e.kind(), e.clause())), Some((Kind::Unsupported, Some(Clause::G5))));
    peer.pass("page", &page);
    assert_eq!(peer.hear(), "mapped");
    let mut client = Connected { peer, session: uuid(1) };
    client.grant(&files, 1, LeaseAccess::Read, 0, "r");
    assert_eq!(client.ask("read r 0"), "true 1000 6");
    files.revoke(&cx(), object(1), Which::All).expect("a recall");
    assert!(client.ask("read r 0").starts_with("false"));
}

#[test]
fn g1_slots_are_bounded_and_come_back() {
    let directory = directory();
    let files = open(directory.path());
    write(&*files, object(1), 0, b"bytes").expect("a write");
    let client = Connected::new(&files, directory.path(), 1);
    let grant = || files.grant(&cx(), client.session, object(1), LeaseAccess::Read, ALL, 0);
    let taken: Vec<_> = (0..1024).map(|_| grant().map(|g| (g.slot, g.generation)).expect("a grant")).collect();
    assert_eq!(grant().err().map(|e| e.kind()), Some(Kind::Exhausted));
    files.give_back(client.session, &taken[..10]);
    files.give_back(client.session, &taken[..10]); // nothing of others is given back twice
    let again: Vec<_> = (0..10).map(|_| grant().map(|g| (g.slot, g.generation)).expect("a grant")).collect();
    assert_eq!(grant().err().map(|e| e.kind()), Some(Kind::Exhausted));
    assert!(again.iter().all(|g| !taken.contains(g)), "a slot has a new generation each time");
    files.revoke(&cx(), object(1), Which::All).expect("a recall");
    grant().expect("what was recalled is free");
}

#[test]
fn g2_a_new_daemon_takes_over_the_pages_of_the_old_one() {
    let directory = directory();
    let files = open(directory.path());
    write(&*files, object(1), 0, &bytes(1, LEN)).expect("a write");
    let (mut stuck, mut quick) =
        (Connected::new(&files, directory.path(), 1), Connected::new(&files, directory.path(), 2));
    let mut gone = Connected::new(&files, directory.path(), 3);
    for client in [&mut stuck, &mut quick, &mut gone] {
        client.grant(&files, 1, LeaseAccess::Write, 0, "a");
    }
    stuck.peer.tell(&format!("write a 0 99 {LEN} stop"));
    stuck.peer.wait_until_stopped();
    assert_eq!(quick.ask("write a 10 1 10"), "done");
    drop(gone);
    let mut expected = bytes(1, LEN);
    expected[10..20].fill(1);
    drop(Arc::into_inner(files).expect("the only one")); // as if it had died: pages stay as they are
    std::fs::write(directory.path().join("leases/00000000000000000000000000000009"), b"junk").expect("a spoiled page");
    spoil_owner(directory.path());
    let files = open(directory.path());
    assert_eq!(quick.ask("write a 10 2 10"), "refused", "grants of the old daemon are void");
    let pages = || std::fs::read_dir(directory.path().join("leases")).expect("pages").count();
    assert_eq!(pages(), 2, "those of clients that may come back, also to the daemon after this one, and no junk");
    files.open_session(quick.session, of(&quick.peer)).expect("a session comes back");
    files.open_session(stuck.session, of(&stuck.peer)).expect("also one whose old page still rests");
    stuck.peer.signal(Signal::CONT);
    assert_eq!(stuck.peer.hear(), "void");
    assert!(all(&*files, object(1)) == expected, "T12: nothing of it appears");
    files.sweep_sessions().expect("a sweep");
    assert_eq!(pages(), 4, "they have not said yet what they had");
    files.came_back(quick.session);
    files.came_back(stuck.session);
    files.sweep_sessions().expect("a sweep");
    assert_eq!(pages(), 2, "the new pages");
    drop((stuck, quick));
    files.sweep_sessions().expect("a sweep");
    assert_eq!(pages(), 0, "pages of ended processes go");
}

/// Beside the pages there are, one whose owner has no number that a process can have.
fn spoil_owner(root: &Path) {
    let leases = root.join("leases");
    let of = |name: &str| name.len() == 32 && !name.ends_with('9');
    let names = std::fs::read_dir(&leases).expect("pages").map(|e| e.expect("a page").file_name());
    let name = names.map(|n| n.into_string().expect("a name")).find(|n| of(n)).expect("a page");
    let mut page = std::fs::read(leases.join(name)).expect("a page");
    page[16..20].fill(0xff);
    std::fs::write(leases.join("00000000000000000000000000000008"), page).expect("a spoiled page");
}

#[test]
fn m4_an_append_comes_behind_what_others_write_themselves() {
    let directory = directory();
    let files = open(directory.path());
    let mut client = Connected::new(&files, directory.path(), 1);
    for slot in 0..30 {
        client.grant(&files, slot, LeaseAccess::Write, 0, "a");
        client.peer.tell("grow a");
        assert_eq!(client.peer.hear(), "begun");
        std::thread::sleep(Duration::from_micros(slot * 50));
        let record = bytes(3, 5000);
        let offset =
            send(&*files, object(slot), ObjectVerb::Append, Demand::default(), &record).expect("an append").offset;
        let written: u64 = client.peer.hear().parse().expect("a number");
        assert_eq!(offset, written * 1000, "behind all that counts");
        assert_eq!(all(&*files, object(slot)), [vec![9; offset as usize], record].concat());
    }
}

#[test]
fn g2_a_session_ends_while_its_client_is_stuck() {
    let directory = directory();
    let files = open(directory.path());
    write(&*files, object(1), 0, &bytes(1, LEN)).expect("a write");
    let mut client = Connected::new(&files, directory.path(), 1);
    client.grant(&files, 1, LeaseAccess::Write, 0, "a");
    client.peer.tell(&format!("write a 0 99 {LEN} stop"));
    client.peer.wait_until_stopped();
    files.end_session(client.session).expect("the end");
    call(&*files, object(1), ObjectVerb::Seal).expect("a seal");
    client.peer.signal(Signal::CONT);
    assert_eq!(client.peer.hear(), "void");
    assert!(all(&*files, object(1)) == bytes(1, LEN), "T12: nothing of it appears");
}
