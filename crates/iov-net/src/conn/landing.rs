//! Bytes of an answer go from the socket straight into the memory of whoever asked.

use iov_store::Memory;
use iov_types::{Error, Result};
use iov_wire::messages::ObjectAnswer;

use super::{Connection, Reading, Reply, lock};

/// An answer whose bytes are arriving.
pub(super) struct Landing {
    pub(super) request: u64,
    pub(super) answer: ObjectAnswer,
    /// Which of its completions, and how much of that one is there.
    pub(super) at: usize,
    pub(super) done: usize,
}

impl Connection {
    /// Receives bytes of an answer, into the memory of whoever asked, or away if nobody does any more.
    pub(super) fn land(&self, reading: &mut Reading, mut landing: Landing) -> Result<Option<()>> {
        loop {
            let Some(completion) = landing.answer.completions.get(landing.at) else {
                self.answer(landing.request, Ok(Reply::Read(landing.answer)));
                return Ok(Some(()));
            };
            let left = completion.len as usize - landing.done;
            if left == 0 {
                (landing.at, landing.done) = (landing.at + 1, 0);
                continue;
            }
            // While this is locked nobody takes the memory back.
            let mut waiting = lock(&self.waiting);
            let got = match waiting.get_mut(&landing.request) {
                Some(waiter) => {
                    let room = waiter.rooms.get_mut(completion.index as usize).map(Memory::bytes_mut);
                    let room = room.and_then(|room| room.get_mut(landing.done..landing.done + left));
                    let room =
                        room.ok_or_else(|| Error::corrupt("the daemon sent more bytes than there is room for"))?;
                    reading.frames.payload(&self.stream, room, false)?
                }
                None => {
                    drop(waiting);
                    let mut away = [0; 4096];
                    reading.frames.payload(&self.stream, &mut away[..left.min(4096)], false)?
                }
            };
            match got {
                Some(n) => landing.done += n,
                None => {
                    reading.landing = Some(landing);
                    return Ok(None);
                }
            }
        }
    }
}
