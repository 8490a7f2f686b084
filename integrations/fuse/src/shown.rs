//! What the kernel's cached pages of an open file are of, and whether what is told of it is explained by what was written here.
//!
//! What programs of this mount write is in the kernel's pages before it is in the store. A kernel that drops all pages whenever it is told of
//! another time of change (`FUSE_AUTO_INVAL_DATA`) reads them anew behind each of its own writes; and between the copy into a page and the request
//! that takes it to the store, a page that is dropped and read again is as it was before, so that who wrote does not find what it wrote, and
//! loses it if the page is mapped and written. So the kernel drops pages by itself only where the length is another one than it knows, and
//! for another time of change when it is told to: when others have changed the bytes.

use iov_posix::Alone;

use crate::inodes::Content;

/// By how much times of one host's clocks differ: file systems stamp with the time of the last tick.
const SLACK_NS: i64 = 20_000_000;
/// For how long what was copied into a page is on its way here, at most, but for programs that stand still.
const ON_ITS_WAY_NS: i64 = 100_000_000;
/// How long it takes the kernel to hear an answer, nearly always.
const ANSWERED_NS: i64 = 1_000_000;
/// Who has written within this time may be writing.
const LATELY_NS: i64 = 1_000_000_000;
/// How often pages are dropped again for one time that they were.
const AGAIN: u8 = 2;

/// What was written here, by the clock of the wall.
#[derive(Clone, Copy, Debug)]
struct Own {
    first_ns: i64,
    last_ns: i64,
    /// Behind the last byte.
    end: u64,
}

/// Why pages were dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dropped {
    /// Others have changed them, or may have.
    Others,
    /// Somebody has got a lock: who respects it is not writing.
    Locked,
    /// Something of ours was on its way when they were last.
    Again,
}

/// Of a file that somebody has open who may have its pages. Times are of the monotonic clock where nothing else is said.
#[derive(Debug)]
pub(crate) struct Shown {
    size: u64,
    /// By the clock of the wall.
    mtime_ns: i64,
    /// When that was asked for.
    asked_ns: i64,
    own: Option<Own>,
    /// How many writes are under way.
    writing: usize,
    /// When one began or ended last.
    written_ns: i64,
    /// Others may have written between ours, of which the time of the last change says nothing.
    is_mixed: bool,
    /// Pages that were written by a mapping have come: to drop one while it is written otherwise may lose that.
    is_mapped: bool,
    /// It was told of another length, at which the kernel drops its pages if it heard of it.
    is_resized: bool,
    /// Pages were dropped while some of ours may have been on its way, and may be as they were before that until all are dropped while none is.
    is_unsure: bool,
    /// When any were dropped last.
    last_dropped_ns: i64,
    /// When pages were dropped last of which some of ours may have been on its way.
    dropped_ns: i64,
    /// How often that is to be done again, at most.
    again_left: u8,
    /// Since when it is due.
    again_since_ns: Option<i64>,
    /// Since when nobody else can have changed the bytes, if that still holds: all pages are of then, or of later, and of what was written here.
    alone: Option<Alone>,
    /// How many have it open.
    pub(crate) readers: usize,
    /// When it was last looked at for what others have done.
    pub(crate) looked_ns: i64,
}

impl Shown {
    pub(crate) fn new(content: Content, now_ns: i64) -> Shown {
        let Content { size, mtime_ns, .. } = content;
        Shown {
            size,
            mtime_ns,
            asked_ns: i64::MIN,
            own: None,
            writing: 0,
            written_ns: i64::MIN,
            is_mixed: false,
            is_mapped: false,
            is_resized: false,
            is_unsure: false,
            last_dropped_ns: i64::MIN,
            dropped_ns: i64::MIN,
            again_left: 0,
            again_since_ns: None,
            alone: None,
            readers: 0,
            looked_ns: now_ns,
        }
    }

    /// A write begins, or another change of its bytes: up to `end`, as far as that is known. `true`: pages are to be dropped again before long.
    pub(crate) fn begins(&mut self, end: u64, (wall_ns, now_ns): (i64, i64)) -> bool {
        self.writing += 1;
        self.was_written(end, (wall_ns, now_ns));
        self.is_unsure |= now_ns.saturating_sub(self.last_dropped_ns) < ON_ITS_WAY_NS;
        let near = now_ns.saturating_sub(self.dropped_ns) < ON_ITS_WAY_NS;
        near && self.drop_again(now_ns)
    }

    /// Nobody else can change the bytes, perhaps, since then: what the kernel has is of then, or of later. `None`: nobody knows. Pages that are written by a mapping may
    /// have stayed where all were to be dropped.
    pub(crate) fn is_since(&mut self, alone: Option<Alone>) {
        self.alone = alone.filter(|_| !self.is_mapped);
    }

    /// Since when nobody else can have changed what the kernel has of it, if that still holds.
    pub(crate) fn alone(&self) -> Option<&Alone> {
        self.alone.as_ref()
    }

    /// Pages come that were written by a mapping.
    pub(crate) fn is_mapped(&mut self) {
        (self.is_mapped, self.again_since_ns) = (true, None);
    }

    /// It has ended; `counted`: it had begun here.
    pub(crate) fn ends(&mut self, counted: bool, now: (i64, i64)) {
        self.writing = self.writing.saturating_sub(counted.into());
        self.was_written(0, now);
    }

    fn was_written(&mut self, end: u64, (wall_ns, now_ns): (i64, i64)) {
        let own = self.own.get_or_insert(Own { first_ns: wall_ns, last_ns: wall_ns, end });
        own.last_ns = own.last_ns.max(wall_ns);
        own.end = own.end.max(end);
        (self.written_ns, self.is_mixed) = (now_ns, true);
    }

    /// A program has set its length or the time of its last change: what is told is that, whatever others have written before.
    pub(crate) fn was_set(&mut self, content: Content, now_ns: i64) {
        (self.size, self.mtime_ns, self.asked_ns) = (content.size, content.mtime_ns, now_ns);
        (self.written_ns, self.is_mixed) = (now_ns, true);
        if let Some(own) = &mut self.own {
            own.end = own.end.min(content.size);
        }
    }

    /// Whether this, which was asked for then and which the kernel is about to be told, says that others have changed the bytes, so that pages are to be
    /// dropped before. Not where the length says so, too: that the kernel sees by itself.
    pub(crate) fn is_others(&self, content: Content, asked_ns: i64, wall_ns: i64) -> bool {
        let Content { size, mtime_ns, .. } = content;
        if asked_ns < self.asked_ns || mtime_ns == self.mtime_ns {
            return false;
        }
        let until_ns = |own: &Own| if self.writing > 0 { wall_ns } else { own.last_ns.min(wall_ns) };
        let is_own = |own: &Own| (own.first_ns - SLACK_NS..=until_ns(own) + SLACK_NS).contains(&mtime_ns);
        self.is_known(size) && !self.own.as_ref().is_some_and(is_own)
    }

    /// Whether the kernel has heard of this length, or has made it itself: by what is under way it may.
    fn is_known(&self, size: u64) -> bool {
        let most = self.own.map_or(self.size, |own| own.end.max(self.size));
        if self.writing > 0 { (self.size..=most).contains(&size) } else { size == most }
    }

    /// The kernel is told of this, or it is known here alone.
    pub(crate) fn told(&mut self, content: Content, asked_ns: i64) {
        if asked_ns < self.asked_ns {
            return;
        }
        if !self.is_known(content.size) {
            self.is_resized = true;
            // By the kernel itself.
            self.were_dropped(asked_ns);
        }
        (self.size, self.mtime_ns, self.asked_ns) = (content.size, content.mtime_ns, asked_ns);
        if let Some(own) = &mut self.own {
            // What is told later is not of before.
            own.first_ns = own.first_ns.max(content.mtime_ns.min(own.last_ns));
            if self.writing == 0 && self.written_ns < asked_ns {
                // Others may have cut what was written here.
                own.end = own.end.min(content.size);
            }
        }
    }

    /// The kernel has begun to drop its pages then, and has done so, or is about to. `true`: it is to do so again before long, since something that was written
    /// here was on its way.
    pub(crate) fn was_dropped(&mut self, why: Dropped, began_ns: i64, now_ns: i64) -> bool {
        let meanwhile = self.writing > 0 || self.written_ns >= began_ns;
        // What others write just now has no other time than what was written here.
        self.is_mixed &= meanwhile || now_ns.saturating_sub(self.written_ns) <= 2 * SLACK_NS;
        self.is_unsure = false;
        self.were_dropped(now_ns);
        if why != Dropped::Again {
            // What others have done before is seen by that.
            (self.again_left, self.looked_ns) = (AGAIN, now_ns);
        }
        // Who has not written lately is not about to have.
        if why != Dropped::Locked && now_ns.saturating_sub(self.written_ns) < LATELY_NS {
            self.dropped_ns = now_ns;
        }
        if !meanwhile {
            // All that had been written by then is read from now on.
            self.again_since_ns = None;
        }
        meanwhile && self.drop_again(now_ns)
    }

    /// The same of some of them.
    pub(crate) fn were_dropped(&mut self, now_ns: i64) {
        self.is_unsure |= self.writing > 0 || now_ns.saturating_sub(self.written_ns) < ON_ITS_WAY_NS;
        self.last_dropped_ns = now_ns;
    }

    /// Whether some may be as they were before they were written here.
    pub(crate) fn is_unsure(&self) -> bool {
        self.is_unsure
    }

    fn drop_again(&mut self, now_ns: i64) -> bool {
        if self.again_left > 0 && !self.is_mapped {
            self.again_since_ns.get_or_insert(now_ns);
        }
        self.again_since_ns.is_some()
    }

    /// Whether pages are to be dropped once more, now: nothing is on its way, or something always is.
    pub(crate) fn drops_again(&mut self, now_ns: i64) -> bool {
        // Nor while the kernel may be hearing how long the file is, which it would throw away.
        let at_rest = self.writing == 0 && now_ns.saturating_sub(self.asked_ns) >= ANSWERED_NS;
        let waited = |since_ns: i64| at_rest || now_ns - since_ns >= ON_ITS_WAY_NS;
        let now = self.again_since_ns.is_some_and(waited);
        if now {
            self.again_since_ns = None;
            self.again_left = self.again_left.saturating_sub(1);
        }
        now
    }

    /// Whether they wait for that.
    pub(crate) fn waits(&self) -> bool {
        self.again_since_ns.is_some()
    }

    /// Whether pages are to be dropped for what others may have done unseen, unless nobody else can have (`is_alone`): it had another length, or nothing was written here since that time, but
    /// before. And for what was dropped while it was written, once nothing was since that time.
    pub(crate) fn is_in_doubt(&mut self, since_ns: i64, is_alone: bool) -> bool {
        let is_quiet = self.writing == 0 && self.written_ns <= since_ns;
        let over = is_quiet && (self.is_unsure || (self.is_mixed && !is_alone));
        self.is_mixed &= !is_quiet;
        (std::mem::take(&mut self.is_resized) && !is_alone) || over
    }
}
