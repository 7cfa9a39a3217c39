//! Declaration of exported functions: C name, arguments, and a body that returns `Result<(), Code>`.
//!
//! The macro wraps each body into the call gate and passes the arguments to the call log.

/// Declares C functions with their bodies.
macro_rules! exports {
    ($(
        $(#[$meta:meta])*
        fn $name:ident($($arg:ident: $type:ty),* $(,)?) |$call:ident| $body:block
    )*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        extern "C" fn $name($($arg: $type),*) -> u32 {
            let arguments: &[&dyn $crate::abi::pointer::Argument] = &[$(&$arg),*];
            $crate::abi::call::gate(stringify!($name), arguments, |$call| $body)
        }
    )*};
}

pub(crate) use exports;
