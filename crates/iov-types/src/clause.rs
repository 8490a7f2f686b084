//! The ids of the clauses in `docs/semantics/clauses.md`, so that a refusal can only name one that exists.

macro_rules! clauses {
    ($($id:ident),* $(,)?) => {
        /// A clause of the semantics. A refusal or failure names the one behind it.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[allow(missing_docs)] // the meaning of each is its text in docs/semantics/clauses.md
        pub enum Clause { $($id),* }

        impl Clause {
            /// Every clause.
            pub const ALL: &[Clause] = &[$(Clause::$id),*];

            /// The id as the documents write it.
            pub const fn id(self) -> &'static str {
                match self { $(Clause::$id => stringify!($id)),* }
            }
        }
    };
}

clauses!(
    O1, O2, O3, O4, O5, O6, O7, O8, O9, O10, O11, C1, C2, C3, C4, C5, C6, C7, P1, P2, P3, P4, P5, P6, P7, P8, M1, M2,
    M3, M4, X1, X2, X3, B1, B2, B3, B4, H1, H2, G1, G2, G3, G4, G5, G6, I1, A1, A2,
);

impl Clause {
    /// The clause of that id, if there is one.
    pub fn from_id(id: &str) -> Option<Clause> {
        Clause::ALL.iter().copied().find(|c| c.id() == id)
    }
}

impl std::fmt::Display for Clause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.id())
    }
}
