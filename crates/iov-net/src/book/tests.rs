use iov_types::{Concurrency, Controls, Demand, Layout, ObjectId, State, catalog::Published};

use super::*;

fn uuid(n: u8) -> Uuid {
    Uuid([n; 16])
}

fn opened(n: u8, writable: bool, epoch: u64) -> Result<CatalogReply> {
    Ok(CatalogReply::Opened(Box::new(Opened {
        ws: uuid(0xee),
        uuid: uuid(n),
        kind: EntryKind::Collection,
        state: State::Open,
        effective: effective(),
        layout: Layout::default(),
        epoch,
        writable,
        inline: false,
        size: None,
        told: None,
    })))
}

/// What holds for a collection: no test here looks at it.
fn effective() -> iov_types::Effective {
    iov_types::Effective {
        consistency: iov_types::Consistency::Sequential,
        eventual_ns: 0,
        concurrency: Concurrency::Shared,
        mutability: iov_types::Mutability::Overwrite,
        atomicity: iov_types::Atomicity::None,
        atomic_unit: 0,
        persistence: iov_types::Persistence::Process,
        point: iov_types::Point::Close,
        temporality: iov_types::Temporality::Multiple,
        drain_ns: 0,
        spatiality: iov_types::Spatiality::Any,
        stride: 0,
        block: 0,
        request_size: Default::default(),
        collection_size: Default::default(),
        on_error: iov_types::OnError::Continue,
    }
}

fn close(n: u8) -> CatalogOp {
    CatalogOp::Close { ws: uuid(0xee), uuid: uuid(n), published: Some(Published::default()) }
}

fn open(n: u8) -> CatalogOp {
    let which = iov_types::Which::Uuid(uuid(n));
    let (kind, controls) = (EntryKind::Collection, Controls::default());
    CatalogOp::Open { ws: uuid(0xee), parent: Uuid::NIL, which, kind, controls, tell: None }
}

/// A submission and its answer.
fn note(
    book: &Book,
    ops: &[CatalogOp],
    how: Submission,
    replies: Vec<Result<CatalogReply>>,
) -> Vec<Result<CatalogReply>> {
    let mut answer = Ok(replies);
    book.answered(&Entry::of(ops.iter(), &how), &mut answer);
    answer.unwrap()
}

fn presented(book: &Book) -> Vec<(u8, u32, u32, u64)> {
    let mut all: Vec<_> = book.to_present().0.iter().map(|p| (p.uuid.0[0], p.handles, p.writers, p.epoch)).collect();
    all.sort_unstable();
    all
}

#[test]
fn what_is_open_is_presented_until_its_last_handle_is_closed() {
    let book = Book::default();
    let three = [opened(1, true, 7), opened(1, false, 7), opened(2, false, 0)];
    note(&book, &[open(1), open(1), open(2)], Submission::Each, three.to_vec());
    assert_eq!(presented(&book), [(1, 2, 1, 7), (2, 1, 0, 0)]);
    let failed = Err(Error::not_found("nothing"));
    note(&book, &[open(3), close(1)], Submission::Each, vec![failed, Ok(CatalogReply::Done)]);
    assert_eq!(presented(&book), [(1, 1, 1, 7), (2, 1, 0, 0)]);
    // A close ends its handle, whatever is answered.
    note(&book, &[close(1)], Submission::Each, vec![Err(Error::exhausted("the quota"))]);
    assert_eq!(presented(&book), [(2, 1, 0, 0)]);
    // Unless it came before what is to be written elsewhere first.
    let early = Err(Error::busy("not written").with_clause(Clause::C3));
    note(&book, &[close(2)], Submission::Each, vec![early]);
    assert_eq!(presented(&book), [(2, 1, 0, 0)]);
    note(&book, &[open(4), close(2)], Submission::DryRun, vec![opened(4, true, 0), Ok(CatalogReply::Done)]);
    assert_eq!(presented(&book), [(2, 1, 0, 0)], "a dry run opens and closes nothing");
    note(&book, &[CatalogOp::Goodbye], Submission::Each, vec![Ok(CatalogReply::Done)]);
    assert!(presented(&book).is_empty());
}

fn write(n: u8, stage: Option<Uuid>) -> ObjectOp {
    let object = ObjectId { collection: uuid(n), slot: 0 };
    ObjectOp { object, verb: ObjectVerb::Write { offset: 0 }, demand: Demand { stage, ..Demand::default() } }
}

#[test]
fn stages_that_hold_something_are_presented_until_they_are_published_or_dropped() {
    let book = Book::default();
    let stages = |book: &Book| {
        let mut all = book.to_present().1;
        all.sort_unstable();
        all
    };
    let (plain, failed) = (write(1, None), write(1, Some(uuid(9))));
    let ops = [write(1, Some(uuid(5))), write(1, Some(uuid(6)))];
    book.done(ops.iter().map(|op| (op, true)).chain([(&plain, true), (&failed, false)]));
    assert_eq!(stages(&book), [uuid(5), uuid(6)]);
    let discard = ObjectOp { verb: ObjectVerb::Discard { stage: uuid(5) }, ..write(1, None) };
    book.done([(&discard, true)].into_iter());
    let all = Submission::All { batch: uuid(6), remember: false, staged: Vec::new() };
    note(&book, &[], all, Vec::new());
    assert!(stages(&book).is_empty());
}

#[test]
fn what_did_not_come_through_says_why_at_each_use_and_at_its_close() {
    let book = Book::default();
    note(&book, &[open(1), open(2)], Submission::Each, vec![opened(1, true, 7), opened(2, true, 0)]);
    let staged = write(2, Some(uuid(5)));
    book.done([(&staged, true)].into_iter());
    assert_eq!(book.check(uuid(1), None), Ok(()));
    let (opens, _) = book.to_present();
    let why = Error::fenced("passed on").with_clause(Clause::X1);
    let answers = opens.iter().map(|p| if p.uuid == uuid(1) { Err(why.clone()) } else { Ok(CatalogReply::Done) });
    book.resumed(&opens, ResumeAnswer { opens: answers.collect(), lost: vec![uuid(5)], locks: vec![] });
    assert_eq!(book.check(uuid(1), None), Err(why.clone()));
    assert_eq!(book.check(uuid(2), None), Ok(()));
    let lost = book.check(uuid(2), Some(uuid(5))).unwrap_err();
    assert_eq!((lost.kind(), lost.clause()), (Kind::Lost, Some(Clause::M1)));
    let replies = note(&book, &[close(1)], Submission::Each, vec![Err(Error::stale("nobody knows it"))]);
    assert_eq!(replies, [Err(why)]);
    assert_eq!(book.check(uuid(1), None), Ok(()), "a handle of a later open is another one");
}

fn range_lock(offset: u64, len: u64, exclusive: bool) -> LockSpec {
    LockSpec { exclusive, try_only: true, range: iov_types::Range { offset, len }, owner: 0, lease_ns: 0 }
}

fn lock(n: u8, offset: u64, len: u64, exclusive: bool) -> CatalogOp {
    CatalogOp::Lock { ws: uuid(0xee), uuid: uuid(n), lock: range_lock(offset, len, exclusive) }
}

fn locks(book: &Book) -> Vec<(u8, u64, u64, bool)> {
    let of = |p: &PresentedLock| (p.uuid.0[0], p.lock.range.offset, p.lock.range.len, p.lock.exclusive);
    let mut all: Vec<_> = book.locks_to_present().iter().map(of).collect();
    all.sort_unstable();
    all
}

#[test]
fn o11_locks_are_presented_as_their_owner_has_them() {
    let book = Book::default();
    note(&book, &[open(1)], Submission::Each, vec![opened(1, true, 0)]);
    let done = || Ok(CatalogReply::Done);
    note(&book, &[lock(1, 0, 10, true), lock(1, 10, 0, true)], Submission::Each, vec![done(), done()]);
    assert_eq!(locks(&book), [(1, 0, 0, true)]);
    let busy = Err(Error::busy("taken"));
    note(&book, &[lock(1, 4, 2, false), lock(1, 0, 2, false)], Submission::Each, vec![done(), busy]);
    assert_eq!(locks(&book), [(1, 0, 4, true), (1, 4, 2, false), (1, 6, 0, true)]);
    // An unlock that is under way is not presented; one that is refused has given nothing back.
    let unlock = [CatalogOp::Unlock { ws: uuid(0xee), uuid: uuid(1), lock: range_lock(2, 6, false) }];
    let mut entry = Entry::of(unlock.iter(), &Submission::Each);
    book.asked(&mut entry);
    assert_eq!(locks(&book), [(1, 0, 2, true), (1, 8, 0, true)]);
    book.answered(&entry, &mut Err(Error::unavailable("away")));
    assert_eq!(locks(&book), [(1, 0, 4, true), (1, 4, 2, false), (1, 6, 0, true)]);
    note(&book, &[close(1)], Submission::Each, vec![done()]);
    assert!(locks(&book).is_empty());
}

#[test]
fn o11_a_collection_whose_lock_is_gone_is_not_used_any_more() {
    let book = Book::default();
    let done = || Ok(CatalogReply::Done);
    note(&book, &[open(1), lock(1, 0, 10, true)], Submission::Each, vec![opened(1, true, 0), done()]);
    let presented = book.locks_to_present();
    let why = Error::fenced("gone").with_clause(Clause::O11);
    book.locks_resumed(&presented, Ok(ResumeAnswer { locks: vec![Err(why.clone())], ..ResumeAnswer::default() }));
    assert!(locks(&book).is_empty());
    assert_eq!(book.check(uuid(1), None), Err(why.clone()));
    let read = CatalogOp::Read { ws: uuid(0xee), uuid: uuid(1), offset: 0, len: 1 };
    assert_eq!(book.check_ops([open(2), read].iter()), [(1, why)]);
    note(&book, &[close(1)], Submission::Each, vec![done()]);
    assert_eq!(book.check(uuid(1), None), Ok(()));
}

#[test]
fn what_a_refused_batch_would_have_opened_or_closed_is_as_it_was() {
    let book = Book::default();
    note(&book, &[open(1), open(1)], Submission::Each, vec![opened(1, true, 0), opened(1, true, 0)]);
    let all = Submission::All { batch: uuid(6), remember: false, staged: Vec::new() };
    let refused = || Err(Error::exists("its name is taken").with_outcome(Outcome::NotApplied));
    let replies = vec![opened(2, true, 7), Ok(CatalogReply::Done), refused()];
    note(&book, &[open(2), close(1), open(3)], all.clone(), replies);
    assert_eq!(presented(&book), [(1, 2, 2, 0)]);
    note(&book, &[open(2), close(1)], all, vec![opened(2, true, 7), Ok(CatalogReply::Done)]);
    assert_eq!(presented(&book), [(1, 1, 1, 0), (2, 1, 1, 7)]);
}
