//! Where the two sides answer: collects what one step asked for and wakes whoever drives the request.

use std::sync::{Mutex, Weak};

use iov_store::{Answer, Sink};
use iov_types::{Evidence, Result};

use crate::{request::RequestInner, session::lock};

enum Content {
    Evidence {
        items: Vec<Option<Result<Evidence>>>,
        left: usize,
    },
    Answer(Option<Answer>),
    /// Nobody waits for the answer any more; what is done with it.
    Abandoned(OnLate),
}

/// What is done with an answer that comes too late.
pub(crate) type OnLate = Box<dyn Fn(Answer) + Send>;

type Work = Box<dyn FnOnce() + Send>;

/// Answers to one step.
pub(crate) struct Inbox {
    content: Mutex<Content>,
    /// What targets have to do next, for whoever drives the request.
    work: Mutex<Vec<Work>>,
    request: Weak<RequestInner>,
}

/// What a finished step brought.
pub(crate) enum Arrived {
    /// Of each object operation.
    Evidence(Vec<Result<Evidence>>),
    /// Of the submission to the catalog.
    Answer(Answer),
}

impl Inbox {
    pub(crate) fn for_evidence(n: usize, request: Weak<RequestInner>) -> Inbox {
        let items = (0..n).map(|_| None).collect();
        Inbox { content: Mutex::new(Content::Evidence { items, left: n }), work: Mutex::default(), request }
    }

    pub(crate) fn for_answer(request: Weak<RequestInner>) -> Inbox {
        Inbox { content: Mutex::new(Content::Answer(None)), work: Mutex::default(), request }
    }

    pub(crate) fn answer(&self, answer: Answer) {
        let mut content = lock(&self.content);
        let late = std::mem::replace(&mut *content, Content::Answer(None));
        match late {
            Content::Abandoned(late) => {
                drop(content);
                late(answer);
            }
            _ => {
                *content = Content::Answer(Some(answer));
                drop(content);
                self.wake();
            }
        }
    }

    /// Nobody waits for the answer any more. One that has come meanwhile is given back.
    pub(crate) fn abandon(&self, late: OnLate) -> Option<Answer> {
        match &mut *lock(&self.content) {
            Content::Answer(Some(answer)) => Some(std::mem::replace(answer, Ok(Vec::new()))),
            content => {
                *content = Content::Abandoned(late);
                None
            }
        }
    }

    /// Lets targets go on.
    pub(crate) fn work(&self) {
        loop {
            let work = std::mem::take(&mut *lock(&self.work));
            if work.is_empty() {
                return;
            }
            work.into_iter().for_each(|work| work());
        }
    }

    /// Everything, once everything is there.
    pub(crate) fn take(&self) -> Option<Arrived> {
        match &mut *lock(&self.content) {
            Content::Evidence { items, left: 0 } => {
                Some(Arrived::Evidence(std::mem::take(items).into_iter().flatten().collect()))
            }
            Content::Evidence { .. } => None,
            Content::Answer(answer) => answer.take().map(Arrived::Answer),
            Content::Abandoned(_) => None,
        }
    }

    /// Whether the step lent memory, which must stay lent until the evidence is there.
    pub(crate) fn lends_memory(&self) -> bool {
        matches!(&*lock(&self.content), Content::Evidence { .. })
    }

    fn wake(&self) {
        if let Some(request) = self.request.upgrade() {
            request.wake();
        }
    }
}

impl Sink for Inbox {
    fn complete(&self, index: usize, evidence: Result<Evidence>) {
        let mut content = lock(&self.content);
        let Content::Evidence { items, left } = &mut *content else { return };
        if items.get(index).is_some_and(Option::is_none) {
            items[index] = Some(evidence);
            *left -= 1;
        }
        let complete = *left == 0;
        drop(content);
        if complete {
            self.wake();
        }
    }

    fn go_on(&self, work: Work) {
        lock(&self.work).push(work);
        self.wake();
    }
}
