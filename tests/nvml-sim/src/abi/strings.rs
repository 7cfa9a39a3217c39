//! `nvmlErrorString`: one static text per code.

use std::ffi::c_char;

use crate::model::Code;

/// The only function that never fails and needs no initialization; an unknown number is an unknown error.
#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(result: u32) -> *const c_char {
    Code::from_number(result).unwrap_or(Code::Unknown).message().as_ptr()
}
