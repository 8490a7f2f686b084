use iov_store::{OnAnswer, OpCx};
use iov_types::catalog::{CatalogOp, Submission};
use crate::{Service, locks::Ticket};
#[derive(Default)]
pub(crate) struct Waiting;
impl Waiting {
    pub(crate) fn submit(&self, service: &Service, cx: &OpCx, ops: Vec<CatalogOp>, how: Submission, done: OnAnswer) { done(service.answer(cx, ops, how)) }
    pub(crate) fn expire(&self, _: &Service, _: i64) {}
    pub(crate) fn complete(&self, _: &Service, _: Vec<Ticket>) {}
}
