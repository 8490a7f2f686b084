//! Asks for grants: the catalog for leave where it must, then the daemon.

use std::sync::Arc;

use iov_types::{Clause, Error, Kind, Result, Uuid};
use iov_wire::messages::{Access, GrantRequest};

use super::Run;
use crate::{grant::Grant, link::ATTEMPTS, tickets::Shown};

impl Run {
    /// Asks for a grant, unless another does.
    pub(super) fn ask_grant(self, request: GrantRequest, stage: Option<Uuid>) {
        let link = self.direct.link.clone();
        let until = self.cx.deadline_ns;
        let another = |run: Run, told: Option<()>| match told {
            Some(()) => run.go_on(Run::go),
            None => run.go_on(|run| run.granted(Err(Error::timeout("the daemon did not answer in time")))),
        };
        let key = (request.object, request.access == Access::Write);
        if let Some(run) = link.grants_asked.join(key, until, self, another) {
            run.send_grant(request, stage, 1);
        }
    }

    /// Asks for a grant, once the catalog has given leave where it must; again where the connection broke: that has no effect
    /// but the grant.
    fn send_grant(self, request: GrantRequest, stage: Option<Uuid>, attempt: u32) {
        let link = self.direct.link.clone();
        let cx = self.cx.clone();
        let needs = vec![(request.object.collection, request.access == Access::Write)];
        let go = move |shown: Result<Shown>| match shown {
            Ok(shown) => {
                let tickets = shown.iter().map(|(_, bytes)| bytes.to_vec()).collect();
                self.send_with_leave(GrantRequest { tickets, ..request }, stage, attempt);
            }
            Err(e) => self.take_grant(&request, Err(e)),
        };
        link.tickets.with(&cx, || needs, Box::new(go));
    }

    fn send_with_leave(self, request: GrantRequest, stage: Option<Uuid>, attempt: u32) {
        let (direct, cx) = (self.direct.clone(), self.cx.clone());
        let (link, until) = (direct.link.clone(), cx.clone());
        let over = move |up: Result<_>| {
            let checked = up.and_then(|up| direct.link.check(request.object.collection, stage).map(|()| up));
            let up = match checked {
                Ok(up) => up,
                Err(e) => return self.take_grant(&request, Err(e)),
            };
            let (of, again) = (Arc::downgrade(&up), request.clone());
            direct.ask(&up, cx.deadline_ns, &request, move |new| match new {
                Err(e)
                    if e.kind() == Kind::Unavailable
                        && of.upgrade().is_none_or(|up| up.connection.is_broken())
                        && cx.left_ns() > 0
                        && attempt < ATTEMPTS =>
                {
                    self.send_grant(again, stage, attempt + 1);
                }
                new => self.take_grant(&again, new),
            });
        };
        link.with_up(&until, Box::new(over));
    }

    fn take_grant(self, request: &GrantRequest, new: Result<Grant>) {
        let new = new.map_err(|e| match e.clause() {
            // Whatever is wrong with its ticket: by the socket it gets another one, or hears why not.
            Some(Clause::A1) if !request.tickets.is_empty() => {
                self.direct.link.tickets.forget(&[request.object.collection]);
                Error::unsupported(format!("no direct access: {e}"))
            }
            _ => e,
        });
        let taken = self.direct.take(request.object, new);
        let link = self.direct.link.clone();
        self.go_on(move |run| run.granted(taken));
        link.grants_asked.answered((request.object, request.access == Access::Write), ());
    }
}
