//! The table of verbs: what a frame asks or tells. A number is never used for anything else again.

use crate::Wire;
use crate::messages::{
    CatalogAnswer, CatalogRequest, Challenge, Fault, GiveBack, Goodbye, GrantAnswer, GrantRequest, Hello, Join,
    JoinAnswer, ObjectAnswer, ObjectRequest, Proof, Recall, Renew, Resume, ResumeAnswer, Shutdown, StatusAnswer,
    StatusRequest, SumsAnswer, SumsRequest, TakeBack, TakeBackAnswer, Wake, Welcome,
};

/// Who sends a frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Sender {
    /// The side that opened the connection.
    Client,
    /// The other one.
    Server,
    /// Either.
    Both,
}

/// A message that is the whole body of a frame.
pub trait Body: Wire {
    /// The verb of the frame.
    const VERB: Verb;
}

macro_rules! verbs {
    ($($verb:ident = $number:literal, $sender:ident, $body:ident, $text:literal;)*) => {
        /// What a frame asks or tells.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u16)]
        pub enum Verb { $(#[doc = $text] $verb = $number),* }

        impl Verb {
            /// Every verb, in order of number.
            pub const ALL: &[Verb] = &[$(Verb::$verb),*];

            /// The verb of a number.
            pub const fn from_number(number: u16) -> Option<Verb> {
                match number { $($number => Some(Verb::$verb),)* _ => None }
            }

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $(Verb::$verb => stringify!($verb)),* }
            }

            /// Who sends it.
            pub const fn sender(self) -> Sender {
                match self { $(Verb::$verb => Sender::$sender),* }
            }

            /// The name of the message in its body.
            pub const fn body(self) -> &'static str {
                match self { $(Verb::$verb => <$body as Wire>::NAME),* }
            }

            /// What it is for.
            pub const fn text(self) -> &'static str {
                match self { $(Verb::$verb => $text),* }
            }
        }

        $(impl Body for $body { const VERB: Verb = Verb::$verb; })*
    };
}

verbs! {
    Hello = 1, Client, Hello, "Who I am and which versions I speak.";
    Welcome = 2, Server, Welcome, "The version we speak, and what I can do.";
    Catalog = 3, Client, CatalogRequest, "Operations on facts.";
    CatalogAnswer = 4, Server, CatalogAnswer, "Their replies.";
    Object = 5, Client, ObjectRequest, "Operations on objects; the payload is what they write.";
    ObjectAnswer = 6, Server, ObjectAnswer, "Completions of some or all; the payload is what they read.";
    Grant = 7, Client, GrantRequest, "Asks for direct access to a range.";
    GrantAnswer = 8, Server, GrantAnswer, "The grant, with a descriptor beside the frame, or why not.";
    Recall = 9, Server, Recall, "Asks for a grant back.";
    GiveBack = 10, Client, GiveBack, "Gives a grant back.";
    Renew = 11, Both, Renew, "Keeps the session's leases; the server sends it back.";
    Goodbye = 12, Both, Goodbye, "Ends the connection in order.";
    Fault = 13, Both, Fault, "An error of the connection, or of a frame that has no other answer.";
    Status = 14, Client, StatusRequest, "Asks a daemon how it is.";
    StatusAnswer = 15, Server, StatusAnswer, "How it is.";
    Shutdown = 16, Client, Shutdown, "Asks a daemon to end.";
    Resume = 17, Client, Resume, "A session comes back, with what it has open.";
    ResumeAnswer = 18, Server, ResumeAnswer, "What has become of that.";
    Sums = 19, Client, SumsRequest, "Asks for checksums of an object, to compare what is read with them.";
    SumsAnswer = 20, Server, SumsAnswer, "The checksums, in the payload.";
    Challenge = 21, Server, Challenge, "Asks for proof of the store's secret.";
    Proof = 22, Client, Proof, "The proof.";
    Join = 23, Client, Join, "A daemon of targets tells the catalog's that it is there, and how it is.";
    JoinAnswer = 24, Server, JoinAnswer, "What it needs to know to serve them.";
    TakeBack = 25, Client, TakeBack, "Ends what was lent of an object, to be written by others.";
    TakeBackAnswer = 26, Server, TakeBackAnswer, "Whether it is over.";
    Wake = 27, Both, Wake, "Something lies in the ring.";
}

impl Verb {
    /// Its number.
    pub const fn number(self) -> u16 {
        self as u16
    }
}
