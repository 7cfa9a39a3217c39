//! Generated code for the kubelet's APIs.

pub use self::generated::{device_plugin, dra, dra_health, plugin_registration, pod_resources};

#[expect(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    clippy::clone_on_ref_ptr,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated; the documentation is in the .proto files"
)]
mod generated {
    /// The kubelet's package `v1`: the `PodResources` API, which reports the devices allocated to pods.
    pub mod pod_resources {
        tonic::include_proto!("v1");
    }

    /// The kubelet's package `v1beta1`: the device plugin API, through which a plugin offers devices to the kubelet.
    pub mod device_plugin {
        tonic::include_proto!("v1beta1");
    }

    /// The kubelet's package `k8s.io.kubelet.pkg.apis.dra.v1`: the DRA API, through which the kubelet prepares claims.
    pub mod dra {
        tonic::include_proto!("k8s.io.kubelet.pkg.apis.dra.v1");
    }

    /// The kubelet's package `v1alpha1`: the health of the devices of a DRA driver.
    pub mod dra_health {
        tonic::include_proto!("v1alpha1");
    }

    /// The kubelet's package `pluginregistration`: the kubelet asks each socket of its registration directory for its plugin.
    pub mod plugin_registration {
        tonic::include_proto!("pluginregistration");
    }
}
