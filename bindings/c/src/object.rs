//! What is behind a handle, and handles by type.

use std::{marker::PhantomData, ops::Deref};

use ioverbs::Result;

use crate::{
    batch::BatchObject,
    collection::CollectionObject,
    cursor::CursorObject,
    memory::ViewObject,
    metadata::MetadataObject,
    request::RequestObject,
    session::SessionObject,
    table::{self, Pin, Reservation},
    workspace::WorkspaceObject,
};

macro_rules! objects {
    ($($variant:ident($object:ident) = $kind:literal $name:literal $alias:ident: $doc:literal;)*) => {
        /// What is behind a handle.
        pub(crate) enum Object { $($variant(Box<$object>)),* }

        /// What a handle of that kind is called in messages.
        pub(crate) fn name_of_kind(kind: u8) -> Option<&'static str> {
            match kind { $($kind => Some($name),)* _ => None }
        }

        $(
            impl Kind for $object {
                const KIND: u8 = $kind;
                const NAME: &'static str = $name;

                fn of(object: &Object) -> Option<&$object> {
                    match object { Object::$variant(o) => Some(o), #[allow(unreachable_patterns)] _ => None }
                }

                fn wrap(self) -> Object { Object::$variant(Box::new(self)) }
            }

            #[doc = $doc]
            pub type $alias = Handle<$object>;
        )*
    };
}

/// Something that a handle can stand for.
pub(crate) trait Kind: Sized {
    const KIND: u8;
    const NAME: &'static str;
    fn of(object: &Object) -> Option<&Self>;
    fn wrap(self) -> Object;
}

objects! {
    Session(SessionObject) = 1 "session" SessionHandle: "`iov_session *`";
    Workspace(WorkspaceObject) = 2 "workspace" WorkspaceHandle: "`iov_workspace *`";
    Collection(CollectionObject) = 3 "collection or group" CollectionHandle: "`iov_collection *`";
    Batch(BatchObject) = 4 "batch" BatchHandle: "`iov_batch *`";
    Request(RequestObject) = 5 "request" RequestHandle: "`iov_request *`";
    Cursor(CursorObject) = 6 "cursor" CursorHandle: "`iov_cursor *`";
    Metadata(MetadataObject) = 7 "metadata object" MetadataHandle: "`iov_metadata *`";
    View(ViewObject) = 8 "view lease" ViewHandle: "`iov_view_lease *`";
}

/// A handle as a program passes it, a pointer in C: any bits at all, and never followed.
#[repr(transparent)]
pub struct Handle<K>(usize, PhantomData<fn() -> K>);

impl<K> Clone for Handle<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Handle<K> {}

impl<K> Handle<K> {
    /// NULL.
    pub(crate) const NULL: Handle<K> = Handle(0, PhantomData);

    /// The handle of that number; whether it is one shows when it is used.
    pub fn from_bits(bits: u64) -> Self {
        Handle(bits as usize, PhantomData)
    }

    /// Its number.
    pub fn bits(self) -> u64 {
        self.0 as u64
    }

    pub(crate) fn is_null(self) -> bool {
        self.0 == 0
    }
}

#[allow(private_bounds)] // what is behind a handle is nobody else's business
impl<K: Kind> Handle<K> {
    /// The object, for as long as the result lives.
    #[inline]
    pub(crate) fn get(self) -> Result<Pinned<K>> {
        table::get(self.bits(), K::KIND, K::NAME).map(|pin| Pinned(pin, PhantomData))
    }

    /// The object; `None` for NULL.
    pub(crate) fn optional(self) -> Result<Option<Pinned<K>>> {
        if self.is_null() { Ok(None) } else { self.get().map(Some) }
    }

    /// Ends the handle; the object goes with the last user.
    pub(crate) fn end(self) -> Result<Pinned<K>> {
        table::remove(self.bits(), K::KIND, K::NAME).map(|pin| Pinned(pin, PhantomData))
    }
}

/// An object that stays while this lives.
pub(crate) struct Pinned<K>(Pin, PhantomData<fn() -> K>);

impl<K: Kind> Deref for Pinned<K> {
    type Target = K;

    #[inline]
    fn deref(&self) -> &K {
        match K::of(self.0.object()) {
            Some(object) => object,
            // The handle's kind was compared with that of the slot.
            None => unreachable!("a {} is behind a handle of its kind", K::NAME),
        }
    }
}

/// Gives an object a handle.
pub(crate) fn register<K: Kind>(object: K) -> Result<Handle<K>> {
    Ok(Place::new()?.fill(object))
}

/// A handle that is known before its object is there.
pub(crate) struct Place<K>(Reservation, PhantomData<fn() -> K>);

impl<K: Kind> Place<K> {
    pub(crate) fn new() -> Result<Place<K>> {
        Ok(Place(table::reserve(K::KIND)?, PhantomData))
    }

    pub(crate) fn handle(&self) -> Handle<K> {
        Handle::from_bits(self.0.handle())
    }

    pub(crate) fn fill(self, object: K) -> Handle<K> {
        Handle::from_bits(self.0.fill(object.wrap()))
    }
}
