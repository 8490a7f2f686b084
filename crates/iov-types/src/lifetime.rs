//! How long a collection stays when nobody deletes it.

/// What a collection's life is bound to; the numbers of `IOV_LIFETIME_*`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Scope {
    /// Its workspace: it stays until somebody deletes it.
    Workspace = 1,
    /// The process that bound it, and those that joined that one.
    Process = 2,
    /// Its use: it stays for the time of a lease after the last handle was closed.
    Lease = 3,
}

/// How long a collection stays when nobody deletes it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Lifetime {
    /// What it is bound to.
    pub scope: Scope,
    /// [`Scope::Lease`]: how long it stays unused, in nanoseconds; else 0.
    pub lease_ns: u64,
}

impl Lifetime {
    /// Until somebody deletes it: what holds unless something else is asked for.
    pub const KEPT: Lifetime = Lifetime { scope: Scope::Workspace, lease_ns: 0 };
    /// As long as the process that binds it lives, and those that joined it.
    pub const PROCESS: Lifetime = Lifetime { scope: Scope::Process, lease_ns: 0 };

    /// As long as somebody has it open, and so long thereafter.
    pub const fn lease(lease_ns: u64) -> Lifetime {
        Lifetime { scope: Scope::Lease, lease_ns }
    }

    /// Whether it goes by itself.
    pub fn is_temporary(self) -> bool {
        self.scope != Scope::Workspace
    }

    /// Whether the time of a lease is there where it belongs, and only there.
    pub fn is_valid(self) -> bool {
        (self.scope == Scope::Lease) == (self.lease_ns > 0)
    }
}

impl Scope {
    /// The scope of a number of `ioverbs.h`.
    pub fn from_number(n: u32) -> Option<Scope> {
        [Scope::Workspace, Scope::Process, Scope::Lease].into_iter().find(|s| *s as u32 == n)
    }

    /// Its name in text.
    pub const fn text(self) -> &'static str {
        match self {
            Scope::Workspace => "workspace",
            Scope::Process => "process",
            Scope::Lease => "lease",
        }
    }
}
