//! Messages, clients and servers generated from `proto/octavo/v1`.
//!
//! Only [`status`](crate::status) and [`messages`](crate::messages) access the contents of messages; agent and aggregator
//! transport them.

use std::fmt;
use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::ProstCodec;

/// Package `octavo.v1`.
#[expect(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    clippy::clone_on_ref_ptr,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated; the documentation is in the .proto files"
)]
pub mod v1 {
    tonic::include_proto!("octavo.v1");
}

/// Initial buffer size of a stream: enough for a heartbeat or an acknowledgement. tonic's default is 8 KiB, but an
/// aggregator holds two buffers per agent.
const INITIAL_BUFFER_BYTES: usize = 512;
/// Buffer size at which tonic passes encoded messages to the connection.
const YIELD_THRESHOLD_BYTES: usize = 8 * 1024;

/// The Protobuf codec with small buffers.
pub struct SmallBuffers<T, U>(PhantomData<(T, U)>);

impl<T, U> fmt::Debug for SmallBuffers<T, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmallBuffers").finish()
    }
}

impl<T, U> Default for SmallBuffers<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for SmallBuffers<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = <ProstCodec<T, U> as Codec>::Encoder;
    type Decoder = <ProstCodec<T, U> as Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::new(
            INITIAL_BUFFER_BYTES,
            YIELD_THRESHOLD_BYTES,
        ))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::new(
            INITIAL_BUFFER_BYTES,
            YIELD_THRESHOLD_BYTES,
        ))
    }
}
