//! How an exported function is written: its C name and arguments, and a body that answers `Result<(), Code>`.
//!
//! The macro wraps each body into the call gate, so that none can be forgotten, and hands the arguments to the call log.

/// Makes C functions of bodies.
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
