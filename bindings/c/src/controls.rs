//! Controls: `iov_controls_*`.

use std::ffi::c_int;

use ioverbs::{Controls, Error, Kind, Result, profile, text};

use crate::{
    abi::{self, CStruct},
    arg::{BytesMut, In, Text},
    convert,
    guard::guard,
    library::quiet,
    object::{CollectionHandle, SessionHandle, WorkspaceHandle},
    out::{Out, OutBuffer, OutStruct},
};

/// Unsets everything.
#[unsafe(no_mangle)]
pub extern "C" fn iov_controls_init(c: OutStruct<abi::Controls>, size: usize) {
    quiet(|| c.place_of(size).map(|place| place.write(abi::Controls::init())));
}

/// Reads the struct, changes it, and writes back what the program's struct has room for.
fn change(c: &OutStruct<abi::Controls>, how: impl FnOnce(&mut Controls) -> Result<()>) -> Result<()> {
    let mut controls = convert::controls(&c.read()?)?;
    let place = c.place()?;
    how(&mut controls)?;
    let new = convert::controls_out(&controls);
    if !place.holds(&new) {
        let why = format!("{} is too small for a control that this sets: rebuild the program", abi::Controls::NAME);
        return Err(Error::version(why));
    }
    place.write(new);
    Ok(())
}

/// Sets what is unset from a profile.
#[unsafe(no_mangle)]
pub extern "C" fn iov_controls_profile(c: OutStruct<abi::Controls>, name: Text) -> c_int {
    guard(|| change(&c, |controls| profile::set_unset(controls, name.required_utf8("profile")?)))
}

/// Sets what a text names.
#[unsafe(no_mangle)]
pub extern "C" fn iov_controls_parse(c: OutStruct<abi::Controls>, t: Text) -> c_int {
    guard(|| change(&c, |controls| text::parse(controls, t.required_utf8("controls")?)))
}

/// Writes controls as text.
#[unsafe(no_mangle)]
pub extern "C" fn iov_controls_format(c: In<abi::Controls>, out: BytesMut, cap: usize, needed: Out<usize>) -> c_int {
    guard(|| {
        let text = text::format(&convert::controls(&c.required()?)?);
        OutBuffer { memory: out, cap, needed }.write_text(&text, "the text")
    })
}

/// Asks what a create would get.
#[unsafe(no_mangle)]
pub extern "C" fn iov_controls_check(
    s: SessionHandle,
    w: WorkspaceHandle,
    c: In<abi::Controls>,
    granted: OutStruct<abi::Controls>,
) -> c_int {
    guard(|| {
        let session = s.get()?;
        let workspace = w.optional()?;
        if let Some(w) = &workspace {
            crate::submit::same_session(&w.cx, &session.cx)?;
        }
        let asked = convert::controls(&c.required()?)?;
        let granted = granted.place()?;
        match session.cx.session.check_controls(workspace.as_ref().map(|w| &w.workspace), &asked) {
            Ok(effective) => {
                granted.write(convert::effective_out(&effective));
                Ok(())
            }
            Err(refusal) => {
                if refusal.error.kind() == Kind::Refused {
                    granted.write(convert::effective_out(&refusal.offer));
                }
                Err(refusal.error)
            }
        }
    })
}

/// What a handle was granted.
#[unsafe(no_mangle)]
pub extern "C" fn iov_controls_effective(c: CollectionHandle, out: OutStruct<abi::Controls>) -> c_int {
    guard(|| {
        let c = c.get()?;
        let out = out.place()?;
        out.write(convert::effective_out(&c.collection.effective()?));
        Ok(())
    })
}
