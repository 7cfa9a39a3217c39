//! JSON shape of an inventory where it differs from the model.

use serde::de::Deserializer;
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use thiserror::Error;
use utoipa::ToSchema;

use super::json::{is_default, unique};
use super::{Device, Driver, Identity, Inventory, Machine, Neuron, NvmlState};
use crate::id::{Sku, TypeName};
use crate::quantity::{CudaVersion, DriverVersion};

/// [`Inventory`] as a document, with its version and kind.
#[skip_serializing_none]
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(remote = "Inventory", rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Inventory)]
pub struct InventoryDocument {
    /// Version of the format.
    #[serde(getter = "ApiVersion::current")]
    pub api_version: ApiVersion,
    /// Kind of the document.
    #[serde(getter = "Kind::inventory")]
    pub kind: Kind,
    /// Properties of the machine.
    #[serde(default, skip_serializing_if = "is_default")]
    pub machine: Machine,
    /// State of NVML.
    #[schema(value_type = NvmlDocument)]
    pub nvml: NvmlState,
    /// Data from the Neuron driver; absent if it is not loaded.
    pub neuron: Option<Neuron>,
    /// All accelerators, ordered by PCI address.
    #[serde(default, deserialize_with = "devices")]
    pub devices: Vec<Device>,
}

/// Version of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum ApiVersion {
    /// The first version.
    #[serde(rename = "octavo.dev/v1")]
    V1,
}

impl ApiVersion {
    fn current(_: &Inventory) -> Self {
        Self::V1
    }
}

/// Kind of the document.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
pub enum Kind {
    /// An inventory.
    Inventory,
}

impl Kind {
    fn inventory(_: &Inventory) -> Self {
        Self::Inventory
    }
}

impl From<InventoryDocument> for Inventory {
    fn from(document: InventoryDocument) -> Self {
        Self {
            machine: document.machine,
            nvml: document.nvml,
            neuron: document.neuron,
            devices: document.devices,
        }
    }
}

impl Serialize for Inventory {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        InventoryDocument::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Inventory {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        InventoryDocument::deserialize(deserializer)
    }
}

/// Accepts devices in any order. Two devices with the same address are an error.
fn devices<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Device>, D::Error> {
    unique(Vec::deserialize(deserializer)?, "PCI address", |device: &Device| device.pci)
}

/// JSON shape of [`NvmlState`]: the versions of the driver are beside the state.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = Nvml)]
pub(super) enum NvmlDocument {
    Absent {
        reason: String,
    },
    Loading {},
    #[serde(rename_all = "camelCase")]
    Ready {
        #[schema(value_type = String)]
        driver_version: DriverVersion,
        #[schema(value_type = Option<String>)]
        cuda_version: Option<CudaVersion>,
    },
    Lost {
        reason: String,
    },
    #[serde(rename_all = "camelCase")]
    Stalled {
        call: String,
        #[schema(value_type = Option<String>)]
        driver_version: Option<DriverVersion>,
        #[schema(value_type = Option<String>)]
        cuda_version: Option<CudaVersion>,
    },
}

impl From<NvmlDocument> for NvmlState {
    fn from(document: NvmlDocument) -> Self {
        match document {
            NvmlDocument::Absent { reason } => Self::Absent { reason },
            NvmlDocument::Loading {} => Self::Loading,
            NvmlDocument::Ready { driver_version: version, cuda_version: cuda } => {
                Self::Ready(Driver { version, cuda })
            }
            NvmlDocument::Lost { reason } => Self::Lost { reason },
            NvmlDocument::Stalled { call, driver_version, cuda_version: cuda } => Self::Stalled {
                call,
                driver: driver_version.map(|version| Driver { version, cuda }),
            },
        }
    }
}

/// JSON shape of [`Identity`], beside the other keys of a device.
#[skip_serializing_none]
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct IdentityDocument {
    /// Absent if the type is unknown.
    #[serde(rename = "type")]
    #[schema(value_type = Option<String>)]
    type_name: Option<TypeName>,
    #[schema(value_type = Option<String>)]
    sku: Option<Sku>,
    /// Absent if the hardware or its driver identifies the type.
    type_source: Option<TypeSource>,
}

/// Source of a device's type.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TypeSource)]
enum TypeSource {
    /// The label `octavo.dev/type-override`.
    Manual,
}

/// Contradiction in an identity: a SKU is more specific than a type, so it implies one.
#[derive(Debug, Error)]
#[error("{0} is specified without a type")]
pub(super) struct NoTypeError(&'static str);

impl TryFrom<IdentityDocument> for Identity {
    type Error = NoTypeError;

    fn try_from(document: IdentityDocument) -> Result<Self, NoTypeError> {
        let IdentityDocument { type_name, sku, type_source } = document;
        match (type_name, type_source) {
            (Some(type_name), None) => Ok(Self::Known { type_name, sku }),
            (Some(type_name), Some(TypeSource::Manual)) => Ok(Self::Manual { type_name, sku }),
            (None, _) if sku.is_some() => Err(NoTypeError("sku")),
            (None, Some(_)) => Err(NoTypeError("typeSource")),
            (None, None) => Ok(Self::Unknown),
        }
    }
}

impl From<Identity> for IdentityDocument {
    fn from(identity: Identity) -> Self {
        let type_source = identity.is_manual().then_some(TypeSource::Manual);
        let (type_name, sku) = match identity {
            Identity::Known { type_name, sku } | Identity::Manual { type_name, sku } => {
                (Some(type_name), sku)
            }
            Identity::Unknown => (None, None),
        };
        Self { type_name, sku, type_source }
    }
}
