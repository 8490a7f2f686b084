//! The encodings of what client and daemon say to each other, and of the plain data in it.
//!
//! What asks for something is `strict`: a demand that is not understood is refused. What tells something is not: an
//! answer may grow without breaking those who ask.

mod catalog;
mod error;
mod grant;
mod join;
mod object;
mod plain;
mod request;
mod resume;
mod scalars;
mod session;
mod store_map;

pub use grant::{
    Access, GiveBack, GrantAnswer, GrantRequest, Granted, Recall, Stretch, SumsAnswer, SumsRequest, TakeBack,
    TakeBackAnswer, Window,
};
pub use join::{Join, JoinAnswer};
pub use object::{ObjectAnswer, ObjectCall, ObjectCompletion, ObjectRequest, TargetCapability};
pub use request::{CatalogAnswer, CatalogRequest, Context};
pub use resume::{Resume, ResumeAnswer};
pub use session::{
    Challenge, Counter, Fault, Goodbye, Hello, Proof, Renew, Shutdown, StatusAnswer, StatusRequest, StoreCapability,
    Wake, Welcome,
};
