//! What is said to who holds locks, and what it does.

use super::{Answer, Asked, Holder, Request, WANTS, Wants};
use crate::{
    Errno, File, FileSystem, InTheWay, LockKind, LockRange,
    tests::{WRITE, again, file_system, put},
};

const KINDS: [LockKind; 3] = [LockKind::Read, LockKind::Write, LockKind::None];

#[test]
fn what_is_said_is_read_as_it_was_meant() {
    for wants in WANTS {
        for kind in KINDS {
            for range in [LockRange::Whole, LockRange::Bytes(0, u64::MAX), LockRange::Bytes(7, 300)] {
                let asked = Request { wants, kind, range };
                assert_eq!(Request::read(&asked.to_bytes()), Some(asked));
                let asked = Asked { request: asked, proof: vec![7; 300], token: vec![] };
                let bytes = asked.to_bytes().unwrap();
                assert_eq!(Asked::read(&mut &bytes[..]).unwrap(), Some(asked));
                assert!(Asked::read(&mut &bytes[..bytes.len() - 1]).is_err());
            }
        }
    }
    let found = InTheWay { kind: LockKind::Read, first: 1, last: u64::MAX, owner: 1 << 63 };
    for answer in [Err(Errno::EAGAIN), Ok(None), Ok(Some(found)), Ok(Some(InTheWay { kind: LockKind::Write, ..found }))]
    {
        assert_eq!(Answer::read(&Answer(answer).to_bytes()), Some(Answer(answer)));
    }
}

#[test]
fn what_makes_no_sense_is_not_taken_for_something() {
    let good = Request { wants: Wants::Lock, kind: LockKind::Read, range: LockRange::Whole }.to_bytes();
    for at in 0..3 {
        let mut bytes = good;
        bytes[at] = 5;
        assert_eq!(Request::read(&bytes), None, "byte {at}");
        assert_eq!(Asked::read(&mut &[&bytes[..], &[0; 4]].concat()[..]).unwrap(), None);
    }
    let mut bytes = Answer(Ok(None)).to_bytes();
    bytes[4] = 9;
    assert_eq!(Answer::read(&bytes), None);
    bytes[..4].copy_from_slice(&(-1_i32).to_le_bytes());
    assert_eq!(Answer::read(&bytes), None);
}

#[test]
fn o11_a_lock_is_handed_over_past_all_who_try_for_it() {
    let fs = file_system();
    put(&fs, &fs.root(), b"f", b"x");
    let open = |fs: &FileSystem| File::open(&fs.lookup(&fs.root(), b"f").unwrap().0, WRITE).unwrap().0;
    let more = || FileSystem::new(again(fs.workspace()), Default::default());
    let (others, holders) = (more(), more());
    let (mine, theirs) = (open(&fs), open(&others));
    let mut holder = Holder::new(open(&holders));
    let lock = |wants, kind| Request { wants, kind, range: LockRange::Whole };
    for kind in [LockKind::Write, LockKind::Read] {
        mine.lock(5, LockRange::Whole, kind).unwrap();
        assert_eq!(holder.answer(&lock(Wants::Place, kind)), Answer(Ok(None)));
        let tries = || theirs.lock(6, LockRange::Whole, LockKind::Write);
        assert_eq!(tries(), Err(Errno::EAGAIN));
        mine.unlock_all(5).unwrap();
        assert_eq!(tries(), Err(Errno::EAGAIN));
        assert_eq!(holder.answer(&lock(Wants::Lock, kind)), Answer(Ok(None)));
        assert!(holder.holds());
        // Of what is in the way of others nothing is in its own.
        assert_eq!(holder.answer(&lock(Wants::InTheWay, LockKind::Write)), Answer(Ok(None)));
        let found = theirs.lock_in_the_way(6, LockRange::Bytes(3, 9), LockKind::Write).unwrap().unwrap();
        assert_eq!((found.kind, found.first, found.last), (kind, 0, i64::MAX as u64));
        assert_eq!(holder.answer(&lock(Wants::Lock, LockKind::None)), Answer(Ok(None)));
        assert!(!holder.holds());
        tries().unwrap();
        assert_eq!(holder.answer(&lock(Wants::Lock, LockKind::Read)), Answer(Err(Errno::EAGAIN)));
        theirs.unlock_all(6).unwrap();
        holder.answer(&lock(Wants::Lock, LockKind::None)).0.unwrap();
    }
    let parts = |kind, first, last| Request { wants: Wants::Lock, kind, range: LockRange::Bytes(first, last) };
    holder.answer(&parts(LockKind::Write, 10, 19)).0.unwrap();
    holder.answer(&parts(LockKind::None, 10, 14)).0.unwrap();
    assert!(holder.holds(), "of the rest");
    assert_eq!(theirs.lock(6, LockRange::Bytes(15, 15), LockKind::Read), Err(Errno::EAGAIN));
    theirs.lock(6, LockRange::Bytes(10, 14), LockKind::Write).unwrap();
    assert_eq!(holder.answer(&parts(LockKind::Write, 9, 2)), Answer(Err(Errno::EINVAL)));
    holder.answer(&lock(Wants::Keep, LockKind::None)).0.unwrap();
    holder.answer(&lock(Wants::Lock, LockKind::None)).0.unwrap();
    assert!(holder.holds(), "to the end");
}
