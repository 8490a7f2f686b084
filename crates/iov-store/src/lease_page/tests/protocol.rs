//! Every interleaving of the protocol, over an abstract page: two writers or a reader against a server that takes the
//! object back. A process may stop anywhere for any time, or be killed anywhere. Mutants show that the search finds
//! what each step is there for.

use std::collections::HashSet;

/// A step left out or moved.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Mutant {
    None,
    /// The writer looks at the state before it says that it is busy.
    LookThenAnnounce,
    /// The writer does not look again when it has written.
    TrustTheWrite,
    /// The server asks for writers under way before it has revoked.
    WaitThenRevoke,
    /// The server does not wait.
    DoNotWait,
    /// The server leaves the bytes where they are when time is up.
    LeaveInPlace,
    /// The server moves the bytes before it has said so.
    MoveThenDeclare,
    /// The reader does not look again when it has read.
    TrustTheRead,
    /// The server changes the bytes before it has revoked.
    ChangeThenRevoke,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum State {
    Granted,
    Revoked,
    Relocated,
}

/// What a client may believe of its operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum End {
    Running,
    Done,
    Refused,
    Void,
    Killed,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Client {
    at: u8,
    end: End,
    /// What a reader copied.
    copied: [u8; 2],
}

/// Bytes are two halves, as a copy is not atomic. The old inode is what the passed descriptor names, `live` the one that
/// others open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct World {
    state: State,
    busy: u8,
    old: [u8; 2],
    fresh: [u8; 2],
    live_is_fresh: bool,
    clients: [Client; 2],
    server: u8,
    /// The live bytes when the server had finished.
    taken: Option<[u8; 2]>,
}

impl World {
    fn live(&self) -> [u8; 2] {
        if self.live_is_fresh { self.fresh } else { self.old }
    }
}

const IDLE: Client = Client { at: 99, end: End::Refused, copied: [0; 2] };
const READY: Client = Client { at: 1, end: End::Running, copied: [0; 2] };

fn world(clients: [Client; 2]) -> World {
    World {
        state: State::Granted,
        busy: 0,
        old: [0; 2],
        fresh: [9; 2],
        live_is_fresh: false,
        clients,
        server: 1,
        taken: None,
    }
}

/// One step of the writer of `value`; `None` when it has none left.
fn write_step(mut w: World, who: usize, value: u8, mutant: Mutant) -> Option<World> {
    let mut c = w.clients[who];
    let early = mutant == Mutant::LookThenAnnounce;
    match c.at {
        1 if early && w.state != State::Granted => c.end = End::Refused,
        1 if early => c.at = 2,
        1 => (w.busy, c.at) = (w.busy + 1, 2),
        2 if early => (w.busy, c.at) = (w.busy + 1, 3),
        2 if w.state != State::Granted => c.at = 7,
        2 => c.at = 3,
        3 => (w.old[0], c.at) = (value, 4),
        4 => (w.old[1], c.at) = (value, 5),
        5 if w.state == State::Relocated && mutant != Mutant::TrustTheWrite => c.at = 8,
        5 => c.at = 6,
        6 => (w.busy, c.end) = (w.busy - 1, End::Done),
        7 => (w.busy, c.end) = (w.busy - 1, End::Refused),
        8 => (w.busy, c.end) = (w.busy - 1, End::Void),
        _ => return None,
    }
    if c.end != End::Running {
        c.at = 99;
    }
    w.clients[who] = c;
    Some(w)
}

fn read_step(mut w: World, mutant: Mutant) -> Option<World> {
    let mut c = w.clients[0];
    match c.at {
        1 if w.state != State::Granted => c.end = End::Refused,
        1 => c.at = 2,
        2 => (c.copied[0], c.at) = (w.old[0], 3),
        3 => (c.copied[1], c.at) = (w.old[1], 4),
        4 => c.end = if w.state == State::Granted || mutant == Mutant::TrustTheRead { End::Done } else { End::Void },
        _ => return None,
    }
    if c.end != End::Running {
        c.at = 99;
    }
    w.clients[0] = c;
    Some(w)
}

/// The server takes writers back: a seal or a fence.
fn seal_steps(w: World, mutant: Mutant) -> Vec<World> {
    let to = |server: u8| World { server, ..w };
    // Killed processes are known to have ended, whatever their count says.
    let killed = w.clients.iter().filter(|c| c.end == End::Killed && c.at > 1).count() as u8;
    let ended = w.clients.iter().all(|c| c.end != End::Running);
    let drained = w.busy == 0 || (ended && w.busy <= killed);
    let done = |w: World| World { server: 99, taken: Some(w.live()), ..w };
    match w.server {
        1 if mutant == Mutant::WaitThenRevoke => {
            if drained {
                vec![to(10)]
            } else {
                vec![]
            }
        }
        10 => vec![done(World { state: State::Revoked, ..w })],
        1 => vec![World { state: State::Revoked, ..to(2) }],
        2 if mutant == Mutant::DoNotWait => vec![done(w)],
        // Time may be up at once, whatever the count says.
        2 if drained => vec![done(w), to(3)],
        2 => vec![to(3)],
        3 if mutant == Mutant::LeaveInPlace => vec![done(World { state: State::Relocated, ..w })],
        3 if mutant == Mutant::MoveThenDeclare => vec![to(4)],
        3 => vec![World { state: State::Relocated, ..to(4) }],
        4 => vec![World { fresh: [w.old[0], w.fresh[1]], ..to(5) }],
        5 => vec![World { fresh: [w.fresh[0], w.old[1]], ..to(6) }],
        6 => vec![done(World { live_is_fresh: true, state: State::Relocated, ..w })],
        _ => vec![],
    }
}

/// The server takes readers back and publishes in place.
fn publish_steps(w: World, mutant: Mutant) -> Vec<World> {
    let to = |server: u8| World { server, ..w };
    let revoke = World { state: State::Revoked, ..w };
    match (w.server, mutant) {
        (1, Mutant::ChangeThenRevoke) => vec![World { old: [5, w.old[1]], ..to(10) }],
        (10, _) => vec![World { server: 11, ..revoke }],
        (11, _) => vec![World { old: [5, 5], ..to(99) }],
        (1, _) => vec![World { server: 2, ..revoke }],
        (2, _) => vec![World { old: [5, w.old[1]], ..to(3) }],
        (3, _) => vec![World { old: [w.old[0], 5], ..to(99) }],
        _ => vec![],
    }
}

/// Visits every reachable world; the first that breaks a promise.
fn search(start: World, next: impl Fn(World) -> Vec<World>, broken: impl Fn(&World) -> bool) -> (usize, Option<World>) {
    let (mut seen, mut open) = (HashSet::from([start]), vec![start]);
    while let Some(w) = open.pop() {
        if broken(&w) {
            return (seen.len(), Some(w));
        }
        open.extend(next(w).into_iter().filter(|n| seen.insert(*n)));
    }
    (seen.len(), None)
}

fn writers_against_a_seal(mutant: Mutant) -> (usize, Option<World>) {
    let next = |w: World| {
        let mut worlds = seal_steps(w, mutant);
        for who in 0..2 {
            worlds.extend(write_step(w, who, who as u8 + 1, mutant));
            if w.clients[who].end == End::Running {
                let mut killed = w;
                killed.clients[who].end = End::Killed;
                worlds.push(killed);
            }
        }
        // A killed writer takes no step.
        worlds.retain(|n| (0..2).all(|i| w.clients[i].end != End::Killed || n.clients[i] == w.clients[i]));
        worlds
    };
    let broken = |w: &World| {
        let Some(taken) = w.taken else { return false };
        // 1. What was taken stays as it is. 2. A write that was reported done is in it, whole, unless the other one came
        // over it. 3. A refused write is not in it.
        let wrote = |i: usize| w.live().contains(&(i as u8 + 1));
        let done = |i: usize| w.clients[i].end == End::Done;
        let lost = |i: usize| done(i) && w.clients[1 - i].end == End::Refused && w.live() != [i as u8 + 1; 2];
        let refused = |i: usize| w.clients[i].end == End::Refused && wrote(i);
        w.live() != taken || (0..2).any(|i| lost(i) || refused(i))
    };
    search(world([READY, READY]), next, broken)
}

fn reader_against_a_publication(mutant: Mutant) -> (usize, Option<World>) {
    let next = |w: World| publish_steps(w, mutant).into_iter().chain(read_step(w, mutant)).collect();
    let broken = |w: &World| w.clients[0].end == End::Done && w.clients[0].copied[0] != w.clients[0].copied[1];
    search(world([READY, IDLE]), next, broken)
}

#[test]
fn t12_no_interleaving_breaks_a_seal() {
    let (worlds, broken) = writers_against_a_seal(Mutant::None);
    assert_eq!(broken, None);
    assert!(worlds > 1000, "only {worlds} worlds were visited");
}

#[test]
fn t12_each_step_of_the_writers_protocol_is_needed() {
    let needed = [
        Mutant::LookThenAnnounce,
        Mutant::TrustTheWrite,
        Mutant::WaitThenRevoke,
        Mutant::DoNotWait,
        Mutant::LeaveInPlace,
        Mutant::MoveThenDeclare,
    ];
    for mutant in needed {
        let (worlds, broken) = writers_against_a_seal(mutant);
        assert!(broken.is_some(), "{mutant:?} goes unnoticed in {worlds} worlds");
    }
}

#[test]
fn g3_no_interleaving_shows_a_part_of_a_publication() {
    let (worlds, broken) = reader_against_a_publication(Mutant::None);
    assert_eq!(broken, None);
    assert!(worlds > 15, "only {worlds} worlds were visited");
    for mutant in [Mutant::TrustTheRead, Mutant::ChangeThenRevoke] {
        assert!(reader_against_a_publication(mutant).1.is_some(), "{mutant:?} goes unnoticed");
    }
}
