//! Arguments of the C interface, wrapped so that the simulated functions need no `unsafe`.
//!
//! The contract is NVML's: a pointer argument is null or points to memory of its type that the caller lends for the
//! call. The wrappers are transparent, so they appear directly in the exported signatures; only C callers create them.
//! Null is answered with `INVALID_ARGUMENT`, as in the real library. Other invalid pointers are undefined behavior in
//! both.

use std::ffi::{CStr, c_char, c_uint};
use std::fmt::{self, Write as _};

use crate::model::Code;

/// A pointer through which a function returns a value.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputPtr<T>(*mut T);

impl<T: Copy> OutputPtr<T> {
    /// A pointer in a struct of the caller; the contract is the same as for an argument.
    pub(crate) fn from_caller(pointer: *mut T) -> Self {
        Self(pointer)
    }

    /// `INVALID_ARGUMENT` for null, so that a call can fail before it acts.
    pub(crate) fn check(self) -> Result<(), Code> {
        if self.0.is_null() {
            return Err(Code::InvalidArgument);
        }
        Ok(())
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub(crate) fn put(self, value: T) -> Result<(), Code> {
        self.check()?;
        // SAFETY: not null, so writable and of type T by the contract of this module; unaligned, because some callers
        // pack their structs.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }

    /// Reads what the caller filled in: counts, versions, selectors. All types used here accept every bit pattern.
    pub(crate) fn get(self) -> Result<T, Code> {
        self.check()?;
        // SAFETY: not null, so by the contract of this module readable and of type T.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Writes `values` as the array that starts here.
    pub(crate) fn put_all(self, values: &[T]) -> Result<(), Code> {
        if values.is_empty() {
            return Ok(());
        }
        self.check()?;
        let bytes = values.as_ptr().cast::<u8>();
        // SAFETY: not null, and the caller's count argument guarantees the space, which the callers of this function
        // checked. By bytes, because the array may be unaligned.
        unsafe {
            self.0.cast::<u8>().copy_from_nonoverlapping(bytes, size_of_val(values));
        }
        Ok(())
    }

    /// The element at `at` of the array that starts here, whose length is the caller's count argument.
    pub(crate) fn element(self, at: usize) -> Self {
        Self(self.0.wrapping_add(at))
    }

    /// NVML's pattern for lists: `count` is the capacity on input and the number on output; too little capacity is
    /// `INSUFFICIENT_SIZE`. A null list with capacity 0 queries the number.
    pub(crate) fn put_list(self, count: OutputPtr<c_uint>, values: &[T]) -> Result<(), Code> {
        let room = count.get()?;
        let number = c_uint::try_from(values.len()).unwrap_or(c_uint::MAX);
        count.put(number)?;
        if number == 0 {
            return Ok(());
        }
        if room < number {
            return Err(Code::InsufficientSize);
        }
        self.put_all(values)
    }

    /// The version word at the start of every versioned struct.
    pub(crate) fn version(self) -> Result<c_uint, Code> {
        self.check()?;
        // SAFETY: not null, and every type this is called for starts with the version as a 32-bit word.
        Ok(unsafe { self.0.cast::<c_uint>().read_unaligned() })
    }

    /// The same pointer as another struct version of the same function.
    pub(crate) fn cast<U>(self) -> OutputPtr<U> {
        OutputPtr(self.0.cast())
    }
}

/// `NVML_STRUCT_VERSION`: the size in the low bytes, the version number above.
pub(crate) const fn version_of<T>(number: c_uint) -> c_uint {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "structs of the header are far below 16 MiB"
    )]
    let size = size_of::<T>() as c_uint;
    size | (number << 24)
}

/// A pointer through which the caller passes a value.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct InputPtr<T>(*const T);

impl<T: Copy> InputPtr<T> {
    pub(crate) fn get(self) -> Result<T, Code> {
        if self.0.is_null() {
            return Err(Code::InvalidArgument);
        }
        // SAFETY: not null, so by the contract of this module readable and of type T.
        Ok(unsafe { self.0.read_unaligned() })
    }
}

/// A string of the caller.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct InputText(*const c_char);

impl InputText {
    /// The string; invalid UTF-8 matches nothing here, so it is `INVALID_ARGUMENT`.
    pub(crate) fn get(&self) -> Result<&str, Code> {
        if self.0.is_null() {
            return Err(Code::InvalidArgument);
        }
        // SAFETY: not null, so by the contract of this module a NUL-terminated string that outlives the call.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map_err(|_| Code::InvalidArgument)
    }
}

/// A string buffer of the caller; its length is a separate argument.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputText(*mut c_char);

impl OutputText {
    /// `INVALID_ARGUMENT` for null, so that a call can fail before it searches for the text.
    pub(crate) fn check(self) -> Result<(), Code> {
        if self.0.is_null() {
            return Err(Code::InvalidArgument);
        }
        Ok(())
    }

    pub(crate) fn put(self, length: c_uint, text: &str) -> Result<(), Code> {
        self.check()?;
        let room = usize::try_from(length).unwrap_or(usize::MAX);
        if text.len() >= room {
            return Err(Code::InsufficientSize);
        }
        let target = self.0.cast::<u8>();
        // SAFETY: not null, and the caller states that the buffer holds `room` bytes, more than the text has.
        unsafe { target.copy_from_nonoverlapping(text.as_ptr(), text.len()) };
        let end = target.wrapping_add(text.len());
        // SAFETY: one past the text is still inside the buffer, because the text is shorter than the buffer.
        unsafe { end.write(0) };
        Ok(())
    }
}

/// A string in a fixed field of a struct, truncated if necessary, always terminated.
pub(crate) fn field<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (to, from) in field.iter_mut().take(N.saturating_sub(1)).zip(text.bytes()) {
        *to = c_char::from_ne_bytes([from]);
    }
    field
}

/// Format of an argument in the call log.
pub(crate) trait Argument {
    fn write(&self, to: &mut String) -> fmt::Result;

    /// The GPU of the argument, by position in the world, for faults limited to one GPU.
    fn gpu(&self) -> Option<usize> {
        None
    }
}

macro_rules! plain_arguments {
    ($($type:ty),*) => {$(
        impl Argument for $type {
            fn write(&self, to: &mut String) -> fmt::Result {
                write!(to, "{self}")
            }
        }
    )*};
}

plain_arguments!(c_uint, i32, u64);

impl<T> Argument for OutputPtr<T> {
    fn write(&self, to: &mut String) -> fmt::Result {
        to.write_str(if self.0.is_null() { "null" } else { "out" })
    }
}

impl<T> Argument for InputPtr<T> {
    fn write(&self, to: &mut String) -> fmt::Result {
        to.write_str(if self.0.is_null() { "null" } else { "in" })
    }
}

impl Argument for OutputText {
    fn write(&self, to: &mut String) -> fmt::Result {
        to.write_str(if self.0.is_null() { "null" } else { "out" })
    }
}

impl Argument for InputText {
    fn write(&self, to: &mut String) -> fmt::Result {
        to.write_str(self.get().unwrap_or("null"))
    }
}
