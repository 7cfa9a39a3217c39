//! What is generated of the definitions in `proto`: messages, clients and servers.
//!
//! Of the status stream (`proto/octavo/v1`) only `wire` looks inside the messages; agent and aggregator move them. Of
//! kubelet's (`proto/kubelet`) only `k8s` does: which pod has which device is asked, and devices are offered to it by tests.

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

/// Kubelet's package `v1`: who was given which device.
#[expect(
    missing_docs,
    clippy::pedantic,
    clippy::clone_on_ref_ptr,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated; the documentation is in the .proto files"
)]
pub mod pod_resources {
    tonic::include_proto!("v1");
}

/// Kubelet's package `v1beta1`: how a program offers devices to it.
#[expect(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    clippy::clone_on_ref_ptr,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated; the documentation is in the .proto files"
)]
pub mod device_plugin {
    tonic::include_proto!("v1beta1");
}

/// Bytes a stream's buffer starts with: a heartbeat or an acknowledgement, and not tonic's 8 KiB, because an aggregator
/// holds two buffers for each of its agents.
const BUFFER: usize = 512;
/// Where tonic hands an encoder's buffer to the connection.
const YIELD_AT: usize = 8 * 1024;

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
        ProstCodec::<T, U>::raw_encoder(BufferSettings::new(BUFFER, YIELD_AT))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::new(BUFFER, YIELD_AT))
    }
}
