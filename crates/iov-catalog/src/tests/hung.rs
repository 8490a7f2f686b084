//! A target of another daemon that hangs in what it is to seal or publish: whoever does not need it does not wait for it for long (M2, B3).

use iov_store::seam;
use iov_types::{
    Attr, Clause, Controls, Demand, Kind, ObjectOp, ObjectVerb, Outcome, Place, State, Uuid,
    catalog::{CatalogOp, CatalogReply, Staged, Submission},
};

use super::{
    away::{BESIDE, Fixture},
    parted::{GRACE, sealed_by_close, state},
    rig::{SECOND, kind},
    sealing::closed_at,
};
use crate::map::FIRST_ELSEWHERE;

/// How long it takes, in nanoseconds.
fn takes<T>(work: impl FnOnce() -> T) -> (T, i64) {
    let begun_ns = seam::monotonic_ns();
    let done = work();
    (done, seam::monotonic_ns() - begun_ns)
}

impl Fixture {
    /// What its close is to seal, written.
    fn to_be_closed(&self, target: u32, text: &str) -> (Uuid, Place) {
        let (uuid, op) = self.create_at(target, text, sealed_by_close());
        let CatalogReply::Opened(opened) = self.client.ask(op).unwrap() else { panic!() };
        self.write((uuid, opened.layout.place), b"12345");
        (uuid, opened.layout.place)
    }

    /// Something that needs no other daemon; how long it takes.
    fn unrelated(&self, text: &str) -> i64 {
        let (_, op) = self.create_at(0, text, Controls::default());
        let (made, ns) = takes(|| self.client.ask(op));
        made.unwrap();
        ns
    }

    fn is_sealed(&self, one: (Uuid, Place)) -> bool {
        match self.write_with(one, b"x", Demand::default()) {
            Ok(()) => false,
            Err(e) => {
                assert_eq!(e.kind(), Kind::Immutable);
                true
            }
        }
    }

    /// How many objects are still to be sealed.
    fn owed(&self) -> usize {
        self.client.service.core.writer().redo.iter().map(|redo| redo.record.seal.len()).sum()
    }

    fn staged(&self, (collection, place): (Uuid, Place), batch: Uuid, bytes: &[u8]) -> Staged {
        let demand = Demand { stage: Some(batch), domain: Some(self.client.ws), ..Demand::default() };
        self.write_with((collection, place), bytes, demand).unwrap();
        Staged { workspace: self.client.ws, collection, epoch: 0, place }
    }

    fn commit(&self, batch: Uuid, staged: &[Staged]) -> iov_store::Answer {
        let op = |s: &Staged| {
            let attr = Attr { mtime_ns: Some(77), ..Attr::default() };
            CatalogOp::SetAttr { ws: self.client.ws, uuid: s.collection, attr }
        };
        let how = Submission::All { batch, remember: true, staged: staged.to_vec() };
        self.client.submit(staged.iter().map(op).collect(), how)
    }
}

#[test]
fn m2_who_closes_at_a_target_that_hangs_waits_for_a_moment_and_others_do_not() {
    let f = Fixture::new();
    let made = ["a", "b", "c", "d"].map(|text| f.to_be_closed(FIRST_ELSEWHERE, text));
    let beside = f.to_be_closed(BESIDE, "e");
    f.sleeps();
    f.sticks(true);
    let (closed, ns) = takes(|| f.client.close_written(made[0].0));
    let e = closed.unwrap_err();
    assert_eq!((e.kind(), e.outcome()), (Kind::Timeout, Outcome::Applied), "it is not said to be done");
    assert!(ns < 15 * SECOND, "as long as its client waits: {ns}");
    assert!(f.unrelated("first") < 3 * SECOND / 2, "it has just been waited for");
    for one in &made[1..] {
        let (closed, ns) = takes(|| f.client.close_written(one.0));
        assert_eq!(closed.unwrap_err().outcome(), Outcome::Applied);
        assert!(ns < 3 * SECOND / 2, "{ns}");
    }
    f.client.close_written(beside.0).expect("its own target has sealed it");
    assert!(f.is_sealed(beside));
    assert!(f.unrelated("second") < 3 * SECOND / 2);
    assert_eq!(f.owed(), 4);
    // They are tried again, one for all of them.
    f.waited();
    f.client.service.core.ahead_ns.fetch_add(60 * SECOND, std::sync::atomic::Ordering::Relaxed);
    assert!(f.unrelated("third") < 5 * SECOND);
    assert_eq!((f.waited(), f.owed()), (1, 4));
    // One that lies there and is closed meanwhile finds that it goes on.
    f.sticks(false);
    let last = f.to_be_closed(FIRST_ELSEWHERE, "last");
    f.client.close_written(last.0).unwrap();
    assert!(f.is_sealed(last));
    f.later(21 * SECOND);
    f.unrelated("fourth");
    assert_eq!(f.owed(), 0);
    assert!(made.into_iter().all(|one| f.is_sealed(one) && state(&f.client, one.0) == Some(State::Sealed)));
    assert!(f.client.service.unfinished().is_empty());
}

#[test]
fn m2_a_target_that_hangs_is_waited_for_ever_more_rarely_until_it_goes_on() {
    let f = Fixture::new();
    let one = f.to_be_closed(FIRST_ELSEWHERE, "a");
    f.sleeps();
    f.sticks(true);
    f.client.close_written(one.0).unwrap_err();
    f.waited();
    let mut waits = Vec::new();
    for n in 0..14 {
        f.later(9 * SECOND);
        f.unrelated(&n.to_string());
        waits.push(f.waited());
    }
    assert_eq!(waits, [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1], "after a minute, and after one more");
    f.sticks(false);
    f.client.service.go_on();
    assert!(f.is_sealed(one) && f.owed() == 0, "who is back is not waited for");
}

/// It needs longer for each than who needs it himself lets it have while it is left alone.
#[test]
fn m2_a_target_that_is_slow_is_not_left_alone_for_ever() {
    let f = Fixture::new();
    let one = f.to_be_closed(FIRST_ELSEWHERE, "a");
    f.sleeps();
    f.sticks(true);
    f.client.close_written(one.0).unwrap_err();
    let mut asked = 0;
    for n in 0..9 {
        f.later(10 * SECOND);
        f.waited();
        let next = f.to_be_closed(FIRST_ELSEWHERE, &n.to_string());
        asked += f.waited();
        f.client.close_written(next.0).unwrap_err();
    }
    assert!(asked > 0, "it is given time again, though all have closed something there meanwhile");
    f.sticks(false);
    f.client.service.go_on();
    assert!(f.is_sealed(one) && f.owed() == 0);
}

/// What is owed there is not forgotten by a crash, and by who opens the store waited for as briefly.
#[test]
fn m2_what_a_target_that_hangs_has_to_seal_it_has_behind_a_crash() {
    let f = Fixture::new();
    let made = ["a", "b", "c"].map(|text| f.to_be_closed(FIRST_ELSEWHERE, text));
    let beside = f.to_be_closed(BESIDE, "e");
    f.sticks(true);
    made.iter().for_each(|one| drop(f.client.close_written(one.0).unwrap_err()));
    let both = [FIRST_ELSEWHERE, BESIDE].map(|target| f.to_be_closed(target, &target.to_string()));
    let close =
        |one: &(Uuid, Place)| CatalogOp::Close { ws: f.client.ws, uuid: one.0, published: Some(Default::default()) };
    let replies = f.client.submit(both.iter().map(close).collect(), Submission::Each).unwrap();
    assert_eq!(
        replies.iter().map(Result::is_ok).collect::<Vec<_>>(),
        [false, true],
        "who was told of it hears of it alone"
    );
    f.client.close_written(beside.0).unwrap();
    f.sleeps();
    f.waited();
    let (f, ns) = takes(|| f.restart());
    assert!(ns < 5 * SECOND, "{ns}");
    assert_eq!((f.waited(), f.owed()), (1, 4));
    f.sticks(false);
    f.client.service.go_on();
    assert!(f.owed() == 0 && made.into_iter().chain([beside]).chain(both).all(|one| f.is_sealed(one)));
}

#[test]
fn m2_a_target_that_hangs_keeps_nothing_of_the_same_portion_from_being_sealed() {
    let (f, _one, made) = closed_at(300, [FIRST_ELSEWHERE, BESIDE]);
    f.sticks(true);
    f.waited();
    f.later(GRACE + SECOND);
    assert_eq!(f.waited(), 1);
    let there = |n: usize| made.iter().skip(n).step_by(2).filter(|one| f.is_sealed(**one)).count();
    assert!(there(0) == 0 && there(1) > 0, "what comes behind it in the portion");
    f.later(2 * SECOND);
    (0..9).for_each(|_| f.later(SECOND / 10));
    assert_eq!((there(0), there(1), f.waited()), (0, 150, 0), "and all others there");
    f.sticks(false);
    f.client.service.go_on();
    assert_eq!((there(0), there(1), f.owed()), (150, 150, 0));
}

#[test]
fn b3_a_target_that_hangs_keeps_nothing_from_being_published_elsewhere() {
    let f = Fixture::new();
    let there = f.create("there");
    let (uuid, op) = f.create_at(BESIDE, "beside", Controls::default());
    let CatalogReply::Opened(opened) = f.client.ask(op).unwrap() else { panic!() };
    let beside = (uuid, opened.layout.place);
    let batch = seam::new_uuid();
    let staged = [there, beside].map(|one| f.staged(one, batch, b"first"));
    let third = seam::new_uuid();
    let behind = f.staged(there, third, b"the third");
    f.sticks(true);
    let e = f.commit(batch, &staged).unwrap_err();
    assert_eq!((e.kind(), e.outcome()), (Kind::Timeout, Outcome::Applied));
    let next = seam::new_uuid();
    let again = f.staged(beside, next, b"second");
    f.commit(next, &[again]).unwrap();
    assert_eq!(f.client.stat(beside.0).unwrap().bytes, 6);
    assert_eq!(f.client.stat(beside.0).unwrap().mtime_ns, 77);
    // Who repeats it hears when it is done, however short ago it was waited for.
    let repeated = f.commit(batch, &staged).unwrap_err();
    assert_eq!(
        (repeated.kind(), repeated.outcome(), repeated.clause()),
        (Kind::Unavailable, Outcome::Applied, Some(Clause::B3))
    );
    let kept_out = f.commit(third, std::slice::from_ref(&behind)).unwrap_err();
    assert_eq!((kept_out.kind(), kept_out.outcome()), (Kind::Unavailable, Outcome::NotApplied));
    f.sticks(false);
    f.commit(batch, &staged).unwrap();
    let stat = f.client.stat(there.0).unwrap();
    assert_eq!((stat.bytes, stat.mtime_ns), (5, 77));
    assert_eq!(f.client.stat(beside.0).unwrap().bytes, 6, "nothing was published twice");
    // Nor is what comes behind it kept out for longer.
    f.commit(third, std::slice::from_ref(&behind)).unwrap();
    f.sticks(true);
    // Nor is it who asks what became of that, when the target goes on.
    let [fourth, fifth] = [seam::new_uuid(), seam::new_uuid()];
    let staged = f.staged(there, fourth, b"4");
    let last = f.staged(there, fifth, b"the fifth one");
    f.commit(fourth, &[staged]).unwrap_err();
    f.sticks(false);
    let (published, ns) = takes(|| f.client.ask(f.client.publish_op(there.0)));
    assert!(published.is_ok() && ns < 5 * SECOND, "{published:?} {ns}");
    f.commit(fifth, &[last]).unwrap();
    assert_eq!(f.client.stat(there.0).unwrap().bytes, 13);
    assert!(f.client.service.unfinished().is_empty());
}

#[test]
fn m2_what_is_removed_meanwhile_is_not_made_anew_to_be_sealed() {
    let f = Fixture::new();
    let made = ["a", "b"].map(|text| f.to_be_closed(FIRST_ELSEWHERE, text));
    f.sticks(true);
    made.iter().for_each(|one| drop(f.client.close_written(one.0).unwrap_err()));
    f.client.delete(Uuid::NIL, "a").unwrap();
    f.sticks(false);
    f.client.service.go_on();
    let list = ObjectVerb::List { after: None, max: 9 };
    let list = ObjectOp { object: made[0].1.whole(made[0].0), verb: list, demand: Demand::default() };
    let cx = f.client.cx();
    let found = iov_store::run_one(
        &*f.client.service.core.map().backend(FIRST_ELSEWHERE).unwrap(),
        &cx,
        list,
        Default::default(),
    );
    assert_eq!((found.unwrap().objects.len(), f.owed()), (1, 0));
    assert!(f.is_sealed(made[1]));
}

/// Nobody needs it gone.
#[test]
fn o10_what_is_removed_at_a_target_that_hangs_holds_up_others_once() {
    let f = Fixture::new();
    for text in ["a", "b", "c"] {
        let (uuid, _) = f.create(text);
        f.client.close(uuid).unwrap();
    }
    f.unrelated("here");
    f.sleeps();
    f.hangs();
    let (deleted, ns) = takes(|| f.client.delete(Uuid::NIL, "a"));
    deleted.unwrap();
    assert!(ns < 5 * SECOND, "{ns}");
    for text in ["b", "c"] {
        let (deleted, ns) = takes(|| f.client.delete(Uuid::NIL, text));
        assert!(deleted.is_ok() && ns < 3 * SECOND / 2, "{ns}");
    }
    assert!(f.unrelated("first") < 3 * SECOND / 2);
    f.later(15 * SECOND);
    assert!(f.unrelated("second") < 3 * SECOND / 2, "for longer than it was waited for");
    f.is_away(false);
    f.client.service.go_on();
    assert!(f.client.service.core.writer().remove.is_empty());
    assert_eq!(kind(f.client.lookup(Uuid::NIL, "a")), Kind::NotFound);
}
